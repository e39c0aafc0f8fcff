"""The closed, typed schema behind the YAML files: unknown keys and wrong types are errors of one line.

A section's schema is the signature of what it configures: its keyword-only arguments. A new eraser, model
or dataset therefore needs no entry here.
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import ErrorDetails

TARGETS = {  # sections that name a class in _target_ -> what it is a subclass of
    "dataset": "erasure.source.Source",
    "eraser": "erasure.eraser.Eraser",
    "model": "models.classifier.Classifier",
}
VARIABLES = "experiment"  # what an experiment sweeps over and its sections refer to; no part of a run


T = TypeVar("T")
Section = Callable | str  # whose keyword-only arguments are a section's options, or where it is, not yet imported


class ConfigError(ValueError):
    """A configuration that cannot be run; one line that names the value, what is allowed and the remedy."""


def unhashed(default: T) -> T:
    """Declare a settings field that is no part of a run's identity: it says how or where, and moves no number."""
    return field(default=default, metadata={"identity": False})


def hashed(options: Mapping[str, Any], settings: Any) -> dict[str, Any]:
    """Options without those that the dataclass `settings`, or the one of that name, declares `unhashed`."""
    left_out = {f.name for f in fields(_resolved(settings)) if not f.metadata.get("identity", True)}
    return {key: value for key, value in options.items() if key not in left_out}


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

    def __init__(self, section: Mapping[str, Any]) -> None:
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
            raise ConfigError(f"_target_={self.path}: cannot be imported ({' '.join(str(error).split())})") from error
        if not (isinstance(found, type) and issubclass(found, kind)):
            raise ConfigError(refused)
        return found

    @property
    def schema(self) -> Callable:
        """What the options are passed to: an eraser's `from_moments`, unless that hands them on to the class."""
        resolved = self.resolve()
        function = getattr(resolved, "from_moments", resolved)
        parameters = inspect.signature(function).parameters.values()
        return resolved if any(p.kind is p.VAR_KEYWORD for p in parameters) else function

    @property
    def options(self) -> dict[str, Any]:
        """The section without what only identifies it."""
        accepted = keyword_only(self.schema)
        return {key: value for key, value in self.section.items() if key in accepted}

    def build(self, kind: type[T], *args: Any) -> T:
        """Construct the class, a `kind`, from positional arguments and the section's options."""
        return self.resolve(kind)(*args, **self.options)


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
def keyword_only(function: Section) -> Mapping[str, Any]:
    """Keyword-only arguments of a callable and their types."""
    found = _resolved(function)
    hints = typing.get_type_hints(found.__init__ if inspect.isclass(found) else found)
    parameters = inspect.signature(found).parameters.values()
    return {p.name: hints[p.name] for p in parameters if p.kind is p.KEYWORD_ONLY}


def validate(config: Mapping[str, Any], sections: Mapping[str, Section]) -> dict[str, Any]:
    """Check a composed configuration and convert its values to the schema's types.

    Args:
        config: resolved, plain containers.
        sections: section name -> callable whose keyword-only arguments are the section's options,
            for sections that name no `_target_`.

    Raises:
        ConfigError: unknown or missing key, or value of the wrong type; suggests the nearest key.
    """
    common = keyword_only(Common)
    config = {key: value for key, value in config.items() if key != VARIABLES}
    known = [*TARGETS, *sections, *common]
    for key in config:
        if key not in known:
            raise ConfigError(unknown_key(str(key), known))
    if missing := [key for key in (*TARGETS, *sections) if not isinstance(config.get(key), Mapping)]:
        raise ConfigError(f"section '{missing[0]}' is missing: choose one with {missing[0]}=NAME (see --help)")
    checked = _check("", {key: value for key, value in config.items() if key in common}, common)
    Common(**checked)
    for name in TARGETS:
        checked[name] = check_target(name, config[name], name)
    for name, function in sections.items():
        checked[name] = _check(f"{name}.", config[name], keyword_only(function))
    return {key: checked[key] for key in config}


def check_target(place: str, section: Mapping[str, Any], kind: str) -> dict[str, Any]:
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
    return _check(f"{place}.", section, {"name": str, "_target_": str, **keyword_only(target.schema)})


def _check(prefix: str, section: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    try:
        checked = _model(tuple(types.items())).model_validate(dict(section))
    except ValidationError as error:
        raise ConfigError(_one_line(prefix, error.errors()[0], list(types))) from None
    return {key: getattr(checked, f"field_{i}") for i, key in enumerate(types)}


@functools.cache
def _model(types: tuple[tuple[str, Any], ...]) -> type[BaseModel]:
    """Making it takes milliseconds, in a sweep of thousands that want the same few."""
    # Pydantic keeps names with a leading underscore to itself, so fields are numbered and aliased.
    names = {f"field_{i}": key for i, (key, _) in enumerate(types)}
    fields: dict[str, Any] = {f"field_{i}": (kind, ...) for i, (_, kind) in enumerate(types)}
    config = ConfigDict(extra="forbid", alias_generator=lambda field: names[field], populate_by_name=False)
    return create_model("Section", __config__=config, **fields)


def _one_line(prefix: str, error: ErrorDetails, allowed: list[str]) -> str:
    key, *place = error["loc"]
    if error["type"] == "extra_forbidden":
        return unknown_key(str(key), [n for n in allowed if n not in ("name", "_target_")], what=f"key {prefix}")
    if error["type"] == "missing" and not place:
        return f"{prefix}{key} is missing: set it with {prefix}{key}=VALUE"
    message = error["msg"][0].lower() + error["msg"][1:]
    return f"{prefix}{key}{''.join(f'[{p}]' for p in place)}={error['input']}: {message}"


def unknown_key(key: str, known: list[str], what: str = "key ") -> str:
    """Say that there is no such key, which is nearest, and which there are."""
    nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]}? " if nearest else ""
    return f"unknown {what}{key}: {hint}" + (f"choose from {', '.join(sorted(known))}" if known else "it has none")
