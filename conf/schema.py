"""The closed, typed schema behind the YAML files: unknown keys and wrong types are errors of one line.

A section's schema is the keyword-only arguments of a class that it names, or a dataclass of settings.
A new eraser, model or dataset therefore needs no entry here.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar

from conf import Options
from conf.check import ConfigError, check, keyword_only, unknown_key
from conf.target import SECTIONS, TARGETS, check_target, imported

VARIABLES = "experiment"  # what sections refer to, an experiment sweeps over it; no part of a run

T = TypeVar("T")
Section = type | str  # dataclass of a section's options, or where it is, not yet imported


def unhashed(default: T) -> T:
    """Declare a settings field that is no part of a run's identity: it says how or where, and moves no number."""
    return field(default=default, metadata={"identity": False})


def later(default: T) -> T:
    """Declare a settings field that came later: at its default it is no part of an identity, so runs keep theirs."""
    return field(default=default, metadata={"later": True})


def only_with(**others: Any) -> dict[str, Any]:
    """Return metadata of a field that counts towards an identity only where other fields have these values."""
    return {"identity_with": others}


def hashed(options: Options, settings: Any) -> Options:
    """Return the options that count towards an identity: those not declared `unhashed` in `settings`, groups included.

    A field added `later` is left out at its default, one that counts `only_with` others where those differ.
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


def identifying(config: Options) -> Options:
    """Return the part of a run's configuration that counts towards its identity: see `unhashed`."""
    counted = hashed({key: config[key] for key in (*TARGETS, *keyword_only(Common)) if key in config}, Common)
    for name, section in SECTIONS.items():
        if name in config and (own := hashed(config[name], section)):
            counted[name] = own
    return counted


class Config(dict[str, Any]):
    """A checked configuration: plain values, as files hold them, and the settings made of its sections."""

    def __init__(self, plain: Options, made: Options) -> None:
        super().__init__(plain)
        self._made = made

    def settings(self, kind: type[T]) -> T:
        """Return the section of this type."""
        (found,) = (own for own in self._made.values() if isinstance(own, kind))
        return found

    def changed(self, section: str, **options: Any) -> "Config":
        """Return a copy with other values of a section's options."""
        made = replace(self._made[section], **options)
        return Config({**self, section: _plain(made)}, {**self._made, section: made})


@dataclass(frozen=True, kw_only=True)
class Common:
    """Options that belong to no section.

    Args:
        seeds: one training per seed and size; distinct, not negative.
        device: "auto", "cpu", "cuda" or "cuda:N".
        dtype: of erased images on disk.
        runs_dir: where results go.
        cache_dir: where erased datasets are kept.
        counterparts: of `python -m train`: samples that share some statistics with the test images, whose losses are
            followed along the training (`train.counterparts`); null for none.
    """

    seeds: list[int]
    device: str = unhashed("auto")
    dtype: Literal["float32", "float64", "float16", "bfloat16"]
    runs_dir: str = unhashed("runs")
    cache_dir: str = unhashed("cache")
    counterparts: list[Literal["order1", "order2", "independent", "swap", "quantile"]] | None = field(
        default=None, metadata={"later": True}
    )

    def __post_init__(self) -> None:
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(
                f"seeds={self.seeds}: need at least one, all different and none negative, e.g. seeds=[0,1,2]"
            )
        if self.counterparts is not None and len({*self.counterparts}) < max(1, len(self.counterparts)):
            raise ConfigError(
                f"counterparts={self.counterparts}: name each once, e.g. [order1,order2,swap]; null for none"
            )
        for key, place in (("runs_dir", self.runs_dir), ("cache_dir", self.cache_dir)):
            if os.path.isfile(place):  # noqa: PTH113 (False where it may not be asked)
                raise ConfigError(f"{key}={place}: is a file: give a folder, which is made if it is not there")


def _plain(settings: Any) -> Options:
    """Return settings as files hold them: dictionaries, and lists in the place of tuples."""

    def items(pairs: list[tuple[str, Any]]) -> Options:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in pairs}

    return asdict(settings, dict_factory=items)


def _resolved(section: Any) -> Any:
    return imported(section) if isinstance(section, str) else section


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
    absent = {f.name: f.default for f in fields(Common) if f.metadata.get("later") and f.name not in config}
    made = check("", absent | {key: value for key, value in config.items() if key not in TARGETS}, types)
    Common(**{key: value for key, value in made.items() if key not in sections})
    checked = {name: check_target(name, config[name], name) for name in TARGETS}
    checked |= {key: _plain(value) if key in sections else value for key, value in made.items()}
    return Config({key: checked[key] for key in config}, {name: made[name] for name in sections})
