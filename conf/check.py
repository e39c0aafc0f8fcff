"""Check values against types with pydantic; an error is one line, with the nearest key."""

import difflib
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import TypedDict

from conf import Options

AtLeast1 = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
CLOSED = ConfigDict(extra="forbid")  # `__pydantic_config__` of a dataclass or dictionary that takes no other keys
T = TypeVar("T")

_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")  # pydantic's types of errors for unknown keys
_LIMITS = {  # messages by pydantic's type of error
    "greater_than_equal": "must be at least {ge:g}",
    "greater_than": "must be a positive number",
    "finite_number": "must be a positive number",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be {le:g} at most",
    "too_short": "needs at least {min_length:g}",
}


class ConfigError(ValueError):
    """A configuration that cannot be run; one line that names the value, what is allowed and the remedy."""


@functools.cache
def keyword_only(function: Callable) -> Mapping[str, Any]:
    """Return the keyword-only arguments of a callable and their types.

    Raises:
        ConfigError: an argument without a type.
    """
    hints = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function)
    names = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    if untyped := [name for name in names if name not in hints]:
        where = f"{function.__module__}.{function.__qualname__}"
        raise ConfigError(f"{where}: option {untyped[0]} has no type: write one, e.g. {untyped[0]}: int")
    return {name: hints[name] for name in names}


def check(prefix: str, section: Options, kind: type[T]) -> T:
    """Convert options to a dataclass of settings, or to a dictionary of `section_of`, and check them.

    Args:
        prefix: of the keys in error messages.
        section: plain values; a group of options is a dictionary, which becomes a dataclass within the settings.
        kind: type to convert to.

    Raises:
        ConfigError: unknown or missing key, or a value that is refused; suggests the nearest key.
    """
    try:
        return _adapter(kind).validate_python(section)
    except ValidationError as error:
        # unknown keys first: a key that is missing may be one of them, misspelt
        first = min(error.errors(), key=lambda one: one["type"] not in _UNKNOWN)
        raise ConfigError(_one_line(prefix, first, _types(kind))) from None


def section_of(types: Mapping[str, Any]) -> type[Options]:
    """Return the type of a dictionary with these keys and no others, for `check`."""
    return _section_of(tuple(types.items()))


@functools.cache
def _section_of(types: tuple[tuple[str, Any], ...]) -> Any:
    make: Any = TypedDict  # type checkers take only keys that are written out
    section = make("Section", dict(types))
    section.__pydantic_config__ = CLOSED
    return section


_adapter = functools.cache(TypeAdapter)  # takes milliseconds, and a sweep of thousands needs the same few


def _types(kind: Any) -> Mapping[str, Any]:
    return keyword_only(kind) if is_dataclass(kind) else typing.get_type_hints(kind)


def _one_line(prefix: str, error: ErrorDetails, types: Mapping[str, Any]) -> str:
    if isinstance(refused := error.get("ctx", {}).get("error"), ValueError):
        return str(refused)  # by the settings themselves
    loc = list(error["loc"])
    while len(loc) > 1 and is_dataclass(kind := types.get(str(loc[0]))):
        prefix, types = f"{prefix}{loc.pop(0)}.", keyword_only(kind)
    key, *within = loc
    if error["type"] in _UNKNOWN:
        names = [name for name in types if name not in ("name", "_target_")]
        return unknown_key(str(key), names, what=f"key {prefix}")
    kind = types[str(key)]
    if error["type"] == "missing" and not within:
        if kind == Options or is_dataclass(kind):
            return f"section '{prefix}{key}' is missing: choose one with {prefix}{key}=NAME (see --help)"
        return f"{prefix}{key} is missing: set it with {prefix}{key}=VALUE"
    if typing.get_origin(kind) in (typing.Union, UnionType):  # pydantic names the alternative tried
        within = [position for position in within if isinstance(position, int)]
    place = f"{prefix}{key}{''.join(f'[{p}]' for p in within)}"
    value = f"{place}={error['input']}"
    if error["type"] in ("list_type", "tuple_type"):
        return f'{value}: must be a list: write "{place}=[{error["input"]}]", with commas between several values'
    if error["type"] == "dataclass_type":
        options = ", ".join(f"{prefix}{key}.{option}" for option in keyword_only(kind))
        return f"{value}: it has options of its own: set {options}"
    if limit := _LIMITS.get(error["type"]):
        return f"{value}: {limit.format(**error.get('ctx', {}))}"
    return f"{value}: {error['msg'][0].lower()}{error['msg'][1:]}"


_SYNONYMS = {"none": "control", "identity": "control", "original": "control", "fast": "quick"}  # of choices


def unknown_key(key: str, known: list[str], what: str = "key ") -> str:
    """Return a line that names an unknown key, the nearest known one, and all of them.

    Case, blanks and hyphens do not count: "ALF-QLEACE" is near "alf_qleace".
    """
    by_normalised = {_normalised(name): name for name in known}
    normalised = _normalised(key)
    nearest = [_SYNONYMS[normalised]] if _SYNONYMS.get(normalised) in known else []
    nearest += [by_normalised[name] for name in difflib.get_close_matches(normalised, by_normalised, n=1, cutoff=0.6)]
    hint = f"did you mean {nearest[0]}? " if nearest else ""
    return f"unknown {what}{key}: {hint}" + (f"choose from {', '.join(sorted(known))}" if known else "it has none")


def _normalised(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")
