"""Classes named by `_target_` in a configuration; the section's options are their keyword-only arguments."""

import functools
import importlib
import importlib.util
import inspect
import site
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, NotRequired, TypeVar, get_args, get_origin

from conf import Options
from conf.check import ConfigError, check, keyword_only, section_of

# imported by name on first use: they import `conf` themselves, and --help and key errors need no torch
TARGETS = {  # section that names a class in _target_ -> its base class
    "dataset": "erasure.dataset.Source",
    "eraser": "erasure.eraser.Eraser",
    "model": "models.classifier.Model",
}
MODEL_CLASS = "models.any_module.model_class"  # makes a model class from a torch.nn.Module or a function
T = TypeVar("T")


def imported(name: str) -> Any:
    """Import an object by its qualified name, e.g. `models.mlp.MLP`; errors of its module are raised unchanged."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


class Target(Generic[T]):
    """A section that names a class and its options: `{name: mlp, _target_: models.mlp.MLP, width: 128, ...}`.

    Args:
        section: the section.
        base: required base class of the named class: one of `TARGETS`, or a subclass of one.
    """

    def __init__(self, section: Options, base: type[T]) -> None:
        self.path = str(section["_target_"])
        self.section = section
        self.base = base

    def resolve(self) -> type[T]:
        """Import the class; a model may also be a torch.nn.Module or a function that makes one.

        Raises:
            ConfigError: the class does not exist, has another base, or belongs to an installed package.
        """
        module = self.path.rpartition(".")[0]
        is_model = issubclass(self.base, imported(TARGETS["model"]))
        refused = f"_target_={self.path}: must be a subclass of {self.base.__module__}.{self.base.__name__}"
        if not _may_be_imported(module):
            raise ConfigError(f"{refused}, this project's or yours on PYTHONPATH; an installed package is not imported")
        try:
            resolved = imported(self.path)
            if is_model:
                resolved = imported(MODEL_CLASS)(resolved)
        except Exception as error:  # the user's module may raise anything
            hint = "; add the folder that holds it to PYTHONPATH" if isinstance(error, ModuleNotFoundError) else ""
            reason = " ".join(str(error).split()) + hint
            raise ConfigError(f"_target_={self.path}: cannot be imported ({reason})") from error
        if not (isinstance(resolved, type) and issubclass(resolved, self.base)):
            networks = ", a torch.nn.Module or a function that makes one" if is_model else ""
            raise ConfigError(refused + networks)
        return resolved

    @property
    def schema(self) -> Callable:
        """The callable that takes the options: an eraser's fitting function, or the class if it passes them on."""
        resolved = self.resolve()
        for name in ("fit_examples", "from_moments"):
            function = getattr(resolved, name, resolved)
            if not any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values()):
                return function
        return resolved

    @property
    def options(self) -> Options:
        """The section without its name and class."""
        accepted = keyword_only(self.schema)
        return {key: value for key, value in self.section.items() if key in accepted}

    @property
    def nested(self) -> dict[str, tuple[str, bool]]:
        """The kind of each option that holds sections, and whether it holds several, by name.

        {"parts": ("dataset", True)} for `parts: Mapping[str, Source]`,
        {"network": ("model", False)} for `network: Model`.
        """
        found = {}
        for key, annotation in keyword_only(self.schema).items():
            several = get_origin(annotation) is Mapping
            base = (get_args(annotation) or (annotation,))[-1] if several else annotation
            if kinds := [kind for kind, name in TARGETS.items() if base is imported(name)]:
                found[key] = (kinds[0], several)
        return found

    def nested_sections(self) -> Iterator[tuple[str, str, Options]]:
        """Yield key, kind and content of each section within the options."""
        for key, (kind, several) in self.nested.items():
            if several:
                yield from ((f"{key}.{name}", kind, part) for name, part in self.section[key].items())
            else:
                yield key, kind, self.section[key]

    def build(self, *args: Any) -> T:
        """Construct the class from positional arguments and the section's options, nested sections first.

        Nested classes get the same positional arguments.
        """
        options = self.options
        for key, (kind, several) in self.nested.items():
            parts = options[key] if several else {"": options[key]}
            built = {name: target_of(kind, section).build(*args) for name, section in parts.items()}
            options[key] = built if several else built[""]
        return self.resolve()(*args, **options)


def target_of(kind: str, section: Options) -> Target[Any]:
    """Return the target of a section, by its kind: "dataset", "eraser" or "model"."""
    return Target(section, imported(TARGETS[kind]))


@functools.cache
def _may_be_imported(module: str) -> bool:
    """Return whether a possibly untrusted configuration may import a module, without importing it.

    Importing runs code, and installed packages contain harmful modules. A module that cannot be found is allowed,
    because its import fails.
    """
    package = module.partition(".")[0]
    if package in {base.partition(".")[0] for base in TARGETS.values()}:
        return True
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # an empty name, or the program itself
        return False
    if spec is None:
        return True
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = {*map(sysconfig.get_path, names), *site.getsitepackages(), site.getusersitepackages()}
    files = [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.has_location and spec.origin else [])]
    return bool(files) and not any(
        Path(file).resolve().is_relative_to(Path(folder).resolve()) for file in files for folder in installed
    )


def check_target(key: str, section: Options, kind: str) -> Options:
    """Check a section that names a class against that class's options.

    Args:
        key: key of the section.
        section: content of the section.
        kind: "dataset", "eraser" or "model".

    Raises:
        ConfigError: an unknown class, an unknown or missing key, or a value of the wrong type.
        ValueError: the eraser refuses an option for any data.
    """
    for required in ("name", "_target_"):
        if section.get(required) is None:
            raise ConfigError(f"{key}.{required} is missing: every {kind} names itself and its class")
    target = target_of(kind, section)
    resolved = target.resolve()
    if inspect.isabstract(resolved):
        raise ConfigError(f"{target.path}: has no {min(resolved.__abstractmethods__)}: every {kind} defines it")
    nested = {key: Mapping[str, Options] if several else Options for key, (_, several) in target.nested.items()}
    options = {**keyword_only(target.schema), **nested}
    for name in resolved.optional if kind == "model" else ():
        options[name] = NotRequired[options[name]]
    checked = check(f"{key}.", section, section_of({"name": str, "_target_": str, **options}))
    target = target_of(kind, checked)
    for within, kind_within, part in target.nested_sections():
        check_target(f"{key}.{within}", part, kind_within)
    if kind == "eraser":
        resolved.require_options(**target.options)
    return checked
