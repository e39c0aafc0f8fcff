"""The options of a configuration that a run's id and its cache keys contain: all that affect results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from typing import Any, TypeVar

from conf import Options
from conf.check import keyword_only
from conf.commands import config_of

T = TypeVar("T")

# former options in stored runs, with the value that is now fixed; ... (any value) if an option did not affect results
_RETIRED: Mapping[str, Any] = {
    "mdl.share": ...,
    "sample_info.batch_size": ...,
    "sample_info.kernel.size": 2000,
    "sample_info.summaries.draws": 5,
    "sample_info.training.left_out_loss": "sum",
    "sample_info.training.time": "discrete",
}


def unhashed(default: T) -> T:
    """Declare a settings field that ids never contain, because it does not affect results."""
    return field(default=default, metadata={"hashed": False})


def later(default: T) -> T:
    """Declare a settings field added later: ids contain it only if it differs from its default, so old ids stay."""
    return field(default=default, metadata={"not_hashed_at": default})


def only_with(default: Callable[[], T], **others: Any) -> T:
    """Declare a group of options that ids contain only if other fields have these values."""
    return field(default_factory=default, metadata={"hashed_with": others})


def identifying(config: Options, command: str) -> Options:
    """Return the part of a stored configuration that enters a run's id; see `hashed`."""
    kind = config_of(command)
    known = keyword_only(kind)
    return hashed({key: value for key, value in config.items() if key in known}, kind)


def without_retired(config: Options) -> Options:
    """Return a stored run's configuration without options that no longer exist."""
    for name, fixed in _RETIRED.items():
        config = _without(config, name.split("."), fixed)
    return config


def _without(options: Options, path: Sequence[str], fixed: Any) -> Options:
    """Return options without the one at `path`, the keys from the outermost group, if its value or `...` is `fixed`."""
    key, *inner = path
    if key not in options:
        return options
    if not inner:
        return {name: value for name, value in options.items() if name != key or fixed not in (..., value)}
    return {**options, key: _without(options[key], inner, fixed)} if isinstance(options[key], dict) else options


def hashed(options: Options, settings: Any) -> Options:
    """Return the options that an id contains, including groups; see `unhashed`, `later` and `only_with`.

    Args:
        options: options of a configuration or of a group.
        settings: dataclass of the options.
    """
    left_out = {
        f.name
        for f in fields(settings)
        if not f.metadata.get("hashed", True)
        or ("not_hashed_at" in f.metadata and options.get(f.name) == f.metadata["not_hashed_at"])
        or any(options.get(key) != value for key, value in f.metadata.get("hashed_with", {}).items())
    }
    groups = {key: kind for key, kind in keyword_only(settings).items() if is_dataclass(kind)}
    return {
        key: hashed(value, groups[key]) if key in groups and isinstance(value, dict) else value
        for key, value in options.items()
        if key not in left_out
    }
