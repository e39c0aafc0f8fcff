"""Checks of values against types with pydantic; errors are one line and name the nearest key."""

import difflib
import functools
import inspect
import json
import math
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from types import UnionType
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import ErrorDetails
from typing_extensions import TypedDict

from conf import Options

AtLeast1 = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
CLOSED = ConfigDict(extra="forbid")  # `__pydantic_config__` of a dataclass or dictionary without other keys
HIDDEN = ("name", "_target_")  # keys of a choice that users do not set on the command line
T = TypeVar("T")

LARGEST_WHOLE = 2**53  # float64, and so JSON, represents every integer up to this one
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")  # pydantic's error types for unknown keys
_LISTS = ("list_type", "tuple_type")
_WHOLE, _NUMBER = "a whole number", "a number"
_ALLOWED = {  # allowed values, by pydantic's error type
    "greater_than_equal": "at least {ge:g}",
    "greater_than": "a positive number",
    "less_than": "less than {lt:g}",
    "less_than_equal": "{le:g} at most",
    "too_short": "a list of at least {min_length:g}",
    "too_long": "a list of at most {max_length:g}",
    "literal_error": "{expected}",
    "missing": "given",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), _WHOLE),
    **dict.fromkeys(("float_type", "float_parsing"), _NUMBER),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
}


class ConfigError(ValueError):
    """An error of a configuration that cannot be run: one line with the value, the allowed values and the remedy."""


@functools.cache
def keyword_only(function: Callable) -> Mapping[str, Any]:
    """Return the keyword-only arguments of a callable and their types.

    Raises:
        ConfigError: an argument has no type.
    """
    hints = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function)
    names = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    if untyped := [name for name in names if name not in hints]:
        where = f"{function.__module__}.{function.__qualname__}"
        raise ConfigError(f"{where}: option {untyped[0]} has no type: write one, e.g. {untyped[0]}: int")
    return {name: hints[name] for name in names}


def check(prefix: str, section: Options, kind: type[T]) -> T:
    """Convert options to a dataclass of settings, or to a dictionary type made by `section_of`, and check them.

    Args:
        prefix: prefix of the keys in error messages.
        section: plain values; a group of options is a dictionary, which becomes a nested dataclass.
        kind: type to convert to.

    Raises:
        ConfigError: an unknown or missing key, or an invalid value; suggests the nearest key.
    """
    try:
        checked: Any = adapter(kind).validate_python(section)
    except PydanticSchemaGenerationError as error:
        reason = str(error).partition(". ")[0]
        raise ConfigError(f"{prefix}*: {reason}: give options types that YAML has, e.g. int or list[str]") from None
    except ValidationError as error:
        # unknown keys first: a missing key may be a misspelt one of them
        errors = sorted(error.errors(), key=lambda one: one["type"] not in _UNKNOWN)
        raise ConfigError(_one_line(prefix, errors, _types(kind))) from None
    _require_numbers(prefix, section, checked)
    return checked


def _require_numbers(prefix: str, given: Any, checked: Any) -> None:
    """Refuse numbers that result files cannot represent, and booleans as numbers, which pydantic accepts.

    Raises:
        ConfigError: names the option.
    """
    typed = dict(_leaves(given))
    for place, value in _leaves(checked):
        option = f"{prefix}{place}={written(typed.get(place, value))}"
        if isinstance(typed.get(place), bool) and not isinstance(value, bool):
            raise ConfigError(f"{option}: must be a number")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{option}: must be a finite number")
        if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
            raise ConfigError(f"{option}: must be between -2^53 and 2^53, or results could not be stored exactly")


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value in nested dictionaries, settings and lists, after its place, e.g. "data.at_most[0]"."""
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves(one, f"{place}.{key}" if place else str(key))
    elif isinstance(value, (list, tuple)):
        for i, one in enumerate(value):
            yield from _leaves(one, f"{place}[{i}]")
    else:
        yield place, value


def section_of(types: Mapping[str, Any]) -> type[Options]:
    """Return a type for `check`: a dictionary with exactly these keys."""
    return _section_of(tuple(types.items()))


@functools.cache
def _section_of(types: tuple[tuple[str, Any], ...]) -> Any:
    make: Any = TypedDict  # type checkers take only keys that are written out
    section = make("Section", dict(types))
    section.__pydantic_config__ = CLOSED
    return section


adapter = functools.cache(TypeAdapter)  # making one takes milliseconds, and large sweeps reuse the same few


def _types(kind: Any) -> Mapping[str, Any]:
    return keyword_only(kind) if is_dataclass(kind) else typing.get_type_hints(kind)


def _one_line(prefix: str, errors: Sequence[ErrorDetails], types: Mapping[str, Any]) -> str:
    """Describe the first error in one line; name all allowed types of a value."""
    error = errors[0]
    if isinstance(refused := error.get("ctx", {}).get("error"), ValueError):
        return str(refused)  # raised by the settings' own checks
    loc = list(error["loc"])
    while len(loc) > 1 and is_dataclass(kind := types.get(str(loc[0]))):
        prefix, types = f"{prefix}{loc.pop(0)}.", keyword_only(kind)
    key, *within = loc
    if error["type"] in _UNKNOWN:
        names = [name for name in types if name not in HIDDEN]
        return unknown_key(str(key), names, what=f"key {prefix}")
    kind = types[str(key)]
    if error["type"] == "missing" and not within:
        if kind == Options or is_dataclass(kind):
            return f"section '{prefix}{key}' is missing: choose one with {prefix}{key}=NAME (see --help)"
        return f"{prefix}{key} is missing: set it with {prefix}{key}=VALUE"
    if typing.get_origin(kind) in (typing.Union, UnionType):  # pydantic names the alternative tried
        within = [position for position in within if isinstance(position, int)]
    place = f"{prefix}{key}{''.join(f'[{p}]' for p in within)}"
    value = f"{place}={written(error['input'])}"
    if error["type"] == "dataclass_type":
        options = ", ".join(f"{prefix}{key}.{option}" for option in keyword_only(kind))
        return f"{value}: it has options of its own: set {options}"
    of_same_value = [one for one in errors if one["input"] is error["input"] and key in one["loc"]]
    of_same_value.sort(key=lambda one: one["type"] in _LISTS)
    return f"{value}: must be {' or '.join(dict.fromkeys(_allowed(one, place) for one in of_same_value))}"


def _allowed(error: ErrorDetails, place: str) -> str:
    """Describe the allowed values after a refused one."""
    settable = error["input"] is not None and "[" not in place
    value = written(error["input"])
    if error["type"] in _LISTS:
        return "a list" + (f': write "{place}=[{value}]", with commas between several values' if settable else "")
    if error["type"] == "string_type":
        return "a text" + (f": put it in two kinds of quotes, \"{place}='{value}'\"" if settable else "")
    if error["type"] in _ALLOWED:
        return _ALLOWED[error["type"]].format(**error.get("ctx", {}))
    return error["msg"].lower().removeprefix("input should be ")


def written(value: object) -> str:
    """Return a value as the command line writes it."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def unknown_key(key: str, known: list[str], what: str = "key ") -> str:
    """Return a line that names an unknown key, the nearest known key, and all known keys.

    Case, blanks and hyphens are ignored: "ALF-QLEACE" matches "alf_qleace".
    """
    by_normalised = {_normalised(name): name for name in known}
    nearest = difflib.get_close_matches(_normalised(key), by_normalised, n=1)
    hint = f"did you mean {by_normalised[nearest[0]]}? " if nearest else ""
    return f"unknown {what}{key}: {hint}" + (f"choose from {', '.join(sorted(known))}" if known else "it has none")


def _normalised(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")
