"""The options of a configuration that a run's id contains: all that affect results."""

from dataclasses import field, fields, is_dataclass
from typing import Any, TypeVar

from conf import Options
from conf.check import keyword_only
from conf.commands import config_of

T = TypeVar("T")


def unhashed(default: T) -> T:
    """Declare a settings field that ids never contain, because it does not affect results."""
    return field(default=default, metadata={"hashed": False})


def identifying(config: Options, command: str) -> Options:
    """Return the part of a stored configuration that enters a run's id; see `hashed`."""
    kind = config_of(command)
    known = keyword_only(kind)
    return hashed({key: value for key, value in config.items() if key in known}, kind)


def hashed(options: Options, settings: Any) -> Options:
    """Return the options that an id contains, including groups: all but those declared `unhashed`.

    Args:
        options: options of a configuration or of a group.
        settings: dataclass of the options.
    """
    left_out = {f.name for f in fields(settings) if not f.metadata.get("hashed", True)}
    groups = {key: kind for key, kind in keyword_only(settings).items() if is_dataclass(kind)}
    return {
        key: hashed(value, groups[key]) if key in groups and isinstance(value, dict) else value
        for key, value in options.items()
        if key not in left_out
    }
