"""The options of a configuration that count towards a run's identity: its id, and the cache keys of what it needs."""

from collections.abc import Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from typing import Any, TypeVar

from conf import Options
from conf.check import keyword_only
from conf.target_class import config_of

T = TypeVar("T")

# options that stored runs may have, and the value that is now fixed; any value (...) of those that affected no result
_RETIRED: Mapping[str, Any] = {
    "mdl.share": ...,
    "sample_info.batch_size": ...,
    "sample_info.kernel.size": 2000,
    "sample_info.summaries.draws": 5,
}


def unhashed(default: T) -> T:
    """Declare a settings field that is no part of a run's identity: it says how or where, and moves no number."""
    return field(default=default, metadata={"identity": False})


def later(default: T) -> T:
    """Declare a settings field that came later: at its default it is no part of an identity, so runs keep theirs."""
    return field(default=default, metadata={"later": True})


def only_with(**others: Any) -> dict[str, Any]:
    """Return metadata of a field that counts towards an identity only where other fields have these values."""
    return {"identity_with": others}


def identifying(config: Options) -> Options:
    """Return the part of a run's configuration, as files hold it, that counts towards its identity: see `hashed`."""
    kind = config_of(command_of(config))
    known = keyword_only(kind)
    return hashed({key: value for key, value in config.items() if key in known}, kind)


def without_retired(config: Options) -> Options:
    """Return a stored run's configuration without options that no longer exist."""
    for name, fixed in _RETIRED.items():
        config = _without(config, name.split("."), fixed)
    return config


def _without(options: Options, path: Sequence[str], fixed: Any) -> Options:
    """Return options without the one at `path`, a key in each group, if it has the value `fixed` or that is `...`."""
    key, *inner = path
    if key not in options:
        return options
    if not inner:
        return {name: value for name, value in options.items() if name != key or fixed not in (..., value)}
    return {**options, key: _without(options[key], inner, fixed)} if isinstance(options[key], dict) else options


def command_of(config: Options) -> str:
    """Return the command that a configuration belongs to."""
    return next((command for command in ("mdl", "sample_info") if command in config), "train")


def hashed(options: Options, settings: Any) -> Options:
    """Return the options that count towards an identity: those not declared `unhashed` in `settings`, groups included.

    A field added `later` is left out at its default, one that counts `only_with` others where those differ.
    """
    left_out = {
        f.name
        for f in fields(settings)
        if not f.metadata.get("identity", True)
        or (f.metadata.get("later", False) and options.get(f.name) == f.default)
        or any(options.get(key) != value for key, value in f.metadata.get("identity_with", {}).items())
    }
    groups = {key: kind for key, kind in keyword_only(settings).items() if is_dataclass(kind)}
    return {
        key: hashed(value, groups[key]) if key in groups and isinstance(value, dict) else value
        for key, value in options.items()
        if key not in left_out
    }
