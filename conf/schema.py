"""The closed, typed schema behind the YAML files: unknown keys and wrong types are errors of one line.

A section's schema is what it configures: the keyword-only arguments of a class that it names, or a dataclass of
settings. A new eraser, model or dataset therefore needs no entry here.
"""

import difflib
import functools
import importlib
import importlib.util
import inspect
import os
import pkgutil
import site
import sysconfig
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import ErrorDetails

from conf import Options

TARGETS = {  # sections that name a class in _target_ -> what it is a subclass of
    "dataset": "erasure.source.Source",
    "eraser": "erasure.eraser.Eraser",
    "model": "models.classifier.Model",
}
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")  # pydantic's names for keys that there are not
VARIABLES = "experiment"  # what sections refer to, an experiment sweeps over it; no part of a run

T = TypeVar("T")
Section = type | str  # dataclass of a section's options, or where it is, not yet imported


class ConfigError(ValueError):
    """A configuration that cannot be run; one line that names the value, what is allowed and the remedy."""


def unhashed(default: T) -> T:
    """Declare a settings field that is no part of a run's identity: it says how or where, and moves no number."""
    return field(default=default, metadata={"identity": False})


def later(default: T) -> T:
    """Declare a settings field that came later: at its default it is no part of an identity, so runs keep theirs."""
    return field(default=default, metadata={"later": True})


def only_with(**others: Any) -> dict[str, Any]:
    """Metadata of a settings field that is part of an identity only where others of its section have these values."""
    return {"identity_with": others}


def hashed(options: Options, settings: Any) -> Options:
    """Options without those that the dataclass `settings`, or the one of that name, declares `unhashed`; groups too.

    What came `later` is left out at its default, and what matters `only_with` others where those are not so.
    """
    own = _resolved(settings)
    left_out = {
        f.name
        for f in fields(own)
        if not f.metadata.get("identity", True)
        or (f.metadata.get("later", False) and options.get(f.name) == f.default)
        or any(options.get(key) != value for key, value in f.metadata.get("identity_with", {}).items())
    }
    groups = {key: kind for key, kind in keyword_only(own).items() if is_dataclass(kind)}
    return {
        key: hashed(value, groups[key]) if key in groups and isinstance(value, dict) else value
        for key, value in options.items()
        if key not in left_out
    }


class Config(dict[str, Any]):
    """A checked configuration: plain values, as files hold them, and the settings that its sections were made into."""

    def __init__(self, plain: Options, made: Options) -> None:
        super().__init__(plain)
        self._made = made

    def settings(self, kind: type[T]) -> T:
        """The section of this type."""
        (found,) = (own for own in self._made.values() if isinstance(own, kind))
        return found

    def changed(self, section: str, **options: Any) -> "Config":
        """The same with other values of a section's options."""
        made = replace(self._made[section], **options)
        return Config({**self, section: asdict(made)}, {**self._made, section: made})


@dataclass(frozen=True, kw_only=True)
class Common:
    """Options that belong to no section.

    Args:
        seeds: one training per seed and size; distinct, not negative.
        device: "auto", "cpu", "cuda" or "cuda:N".
        dtype: of erased images on disk.
        runs_dir: where results go.
        cache_dir: where erased datasets are kept.
    """

    seeds: list[int]
    device: str = unhashed("auto")
    dtype: Literal["float32", "float64", "float16", "bfloat16"]
    runs_dir: str = unhashed("runs")
    cache_dir: str = unhashed("cache")

    def __post_init__(self) -> None:
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(
                f"seeds={self.seeds}: need at least one, all different and none negative, e.g. seeds=[0,1,2]"
            )
        for key, place in (("runs_dir", self.runs_dir), ("cache_dir", self.cache_dir)):
            if os.path.isfile(place):  # noqa: PTH113 (False where it may not be asked)
                raise ConfigError(f"{key}={place}: is a file: give a folder, which is made if it is not there")


class Target:
    """A section that names a class and its options: `{name: mlp, _target_: models.mlp.MLP, width: 128, ...}`."""

    def __init__(self, section: Options) -> None:
        self.path = str(section["_target_"])
        self.section = section

    def resolve(self, kind: type[T] = object) -> type[T]:
        """Import the class, unless its module is an installed package's.

        Raises:
            ConfigError: there is no such class, or it is no `kind`.
        """
        module, _, attribute = self.path.rpartition(".")
        refused = f"_target_={self.path}: must be a subclass of {kind.__module__}.{kind.__name__}"
        if not _may_be_imported(module):
            raise ConfigError(f"{refused}, this project's or yours on PYTHONPATH; an installed package is not imported")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except Exception as error:  # a module of the user's may raise anything
            reason = " ".join(str(error).split()) + _hidden(error)
            raise ConfigError(f"_target_={self.path}: cannot be imported ({reason})") from error
        if not (isinstance(found, type) and issubclass(found, kind)):
            raise ConfigError(refused)
        return found

    @property
    def schema(self) -> Callable:
        """What the options are passed to: an eraser's fit, unless that hands them on to the class."""
        resolved = self.resolve()
        for name in ("fit_examples", "from_moments"):
            function = getattr(resolved, name, resolved)
            if not any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values()):
                return function
        return resolved

    @property
    def options(self) -> Options:
        """The section without what only identifies it."""
        accepted = keyword_only(self.schema)
        return {key: value for key, value in self.section.items() if key in accepted}

    @property
    def nested(self) -> dict[str, tuple[str, bool]]:
        """Options that hold sections -> their kind, and whether they hold several, by name.

        {"parts": ("dataset", True)} for `parts: Mapping[str, Source]`,
        {"network": ("model", False)} for `network: Model`.
        """
        several = {f"collections.abc.Mapping[str, {base}]": (kind, True) for kind, base in TARGETS.items()}
        kinds = several | {f"<class '{base}'>": (kind, False) for kind, base in TARGETS.items()}
        return {key: kinds[str(kind)] for key, kind in keyword_only(self.schema).items() if str(kind) in kinds}

    def held(self) -> Iterator[tuple[str, str, Options]]:
        """Place, kind and content of the sections that its options hold."""
        for key, (kind, several) in self.nested.items():
            if several:
                yield from ((f"{key}.{name}", kind, part) for name, part in self.section[key].items())
            else:
                yield key, kind, self.section[key]

    def build(self, kind: type[T], *args: Any) -> T:
        """Construct the class, a `kind`, from positional arguments and the section's options, nested sections first.

        These are given the same positional arguments.
        """
        options = self.options
        for key, (_, several) in self.nested.items():
            parts = options[key] if several else {"": options[key]}
            built = {name: Target(section).build(object, *args) for name, section in parts.items()}
            options[key] = built if several else built[""]
        return self.resolve(kind)(*args, **options)


def _hidden(error: Exception) -> str:
    """Where what was not found may be in a user's package that one of this project's, of the same name, hides."""
    package = str(error.name).partition(".")[0] if isinstance(error, ImportError) and error.name else ""
    own = Path(__file__).parents[1] / package
    return f"; {package} is {own}: a package of yours needs another name" if package and own.is_dir() else ""


@functools.cache
def _may_be_imported(module: str) -> bool:
    """Whether a configuration, which may be somebody else's, may have a module imported; found without running any.

    Importing does things, and installed packages have modules that do harm. What is not found may: that fails.
    """
    package = module.partition(".")[0]
    if package in {base.partition(".")[0] for base in TARGETS.values()}:
        return True
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # no name, or the program itself
        return False
    if spec is None:
        return True
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = {*map(sysconfig.get_path, names), *site.getsitepackages(), site.getusersitepackages()}
    places = [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.has_location and spec.origin else [])]
    return bool(places) and not any(
        Path(place).resolve().is_relative_to(Path(folder).resolve()) for place in places for folder in installed
    )


def _resolved(section: Any) -> Any:
    return pkgutil.resolve_name(section) if isinstance(section, str) else section


@functools.cache
def keyword_only(function: Callable) -> Mapping[str, Any]:
    """Keyword-only arguments of a callable and their types."""
    hints = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function)
    parameters = inspect.signature(function).parameters.values()
    return {p.name: hints[p.name] for p in parameters if p.kind is p.KEYWORD_ONLY}


def validate(config: Options, sections: Mapping[str, Section]) -> Config:
    """Check a composed configuration, and make it into the schema's types.

    Args:
        config: resolved, plain containers.
        sections: section name -> dataclass of the section's options, or its qualified name, for sections that name
            no `_target_`; an option that is a dataclass itself is a group of options.

    Raises:
        ConfigError: unknown or missing key, or a value that is refused; suggests the nearest key.
    """
    types = {**keyword_only(Common), **{name: _resolved(section) for name, section in sections.items()}}
    config = {key: value for key, value in config.items() if key != VARIABLES}
    known = [*TARGETS, *types]
    for key in config:
        if key not in known:
            raise ConfigError(unknown_key(str(key), known))
    if missing := [key for key in (*TARGETS, *sections) if not isinstance(config.get(key), Mapping)]:
        raise ConfigError(f"section '{missing[0]}' is missing: choose one with {missing[0]}=NAME (see --help)")
    made = _check("", {key: value for key, value in config.items() if key not in TARGETS}, types)
    Common(**{key: value for key, value in made.items() if key not in sections})
    checked = {name: check_target(name, config[name], name) for name in TARGETS}
    checked |= {key: asdict(value) if key in sections else value for key, value in made.items()}
    return Config({key: checked[key] for key in config}, {name: made[name] for name in sections})


def check_target(place: str, section: Options, kind: str) -> Options:
    """A section that names a class, checked against that class's options.

    Args:
        place: the section's key.
        section: its content.
        kind: "dataset", "eraser" or "model".

    Raises:
        ConfigError: no such class, unknown or missing key, or value of the wrong type.
    """
    if missing := [key for key in ("name", "_target_") if not isinstance(section.get(key), str)]:
        raise ConfigError(f"{place}.{missing[0]} is missing: every {kind} names itself and its class")
    target = Target(section)
    target.resolve(Target({"_target_": TARGETS[kind]}).resolve())
    nested = {key: Mapping[str, Options] if several else Options for key, (_, several) in target.nested.items()}
    checked = _check(f"{place}.", section, {"name": str, "_target_": str, **keyword_only(target.schema), **nested})
    for within, held, part in Target(checked).held():
        check_target(f"{place}.{within}", part, held)
    return checked


def _check(prefix: str, section: Options, types: Mapping[str, Any]) -> Options:
    try:
        checked = _model(tuple(types.items())).model_validate(dict(section))
    except ValidationError as error:
        first = min(
            error.errors(), key=lambda one: one["type"] not in _UNKNOWN
        )  # a key that is missing may be misspelt
        raise ConfigError(_one_line(prefix, first, types)) from None
    return {key: getattr(checked, f"field_{i}") for i, key in enumerate(types)}


@functools.cache
def _model(types: tuple[tuple[str, Any], ...]) -> type[BaseModel]:
    """Making it takes milliseconds, in a sweep of thousands that want the same few."""
    # Pydantic keeps names with a leading underscore to itself, so fields are numbered and aliased.
    numbered: dict[str, Any] = {f"field_{i}": (kind, Field(alias=key)) for i, (key, kind) in enumerate(types)}
    return create_model("Section", __config__=ConfigDict(extra="forbid"), **numbered)  # groups inherit that


def _one_line(prefix: str, error: ErrorDetails, types: Mapping[str, Any]) -> str:
    if isinstance(refused := error.get("ctx", {}).get("error"), ValueError):
        return str(refused)  # by the settings themselves
    place, loc = prefix, list(error["loc"])
    while len(loc) > 1 and is_dataclass(kind := types.get(str(loc[0]))):
        place, types = f"{place}{loc.pop(0)}.", keyword_only(kind)
    key, *within = loc
    if error["type"] in _UNKNOWN:
        return unknown_key(str(key), [name for name in types if name not in ("name", "_target_")], what=f"key {place}")
    if error["type"] == "missing" and not within:
        return f"{place}{key} is missing: set it with {place}{key}=VALUE"
    value = f"{place}{key}{''.join(f'[{p}]' for p in within)}={error['input']}"
    if error["type"] == "dataclass_type":
        options = ", ".join(f"{place}{key}.{option}" for option in keyword_only(types[str(key)]))
        return f"{value}: it has options of its own: set {options}"
    return f"{value}: {error['msg'][0].lower()}{error['msg'][1:]}"


_MEANT = {"none": "control", "identity": "control", "original": "control", "fast": "quick"}  # choices by other names


def unknown_key(key: str, known: list[str], what: str = "key ") -> str:
    """Say that there is no such key, which is nearest, and which there are."""
    nearest = [_MEANT[key]] if _MEANT.get(key) in known else difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]}? " if nearest else ""
    return f"unknown {what}{key}: {hint}" + (f"choose from {', '.join(sorted(known))}" if known else "it has none")
