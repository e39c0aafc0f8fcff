"""Composition of configurations from lists of overrides, for one run or for all jobs of a sweep."""

import contextlib
import copy
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import hydra
from hydra import compose, initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType, Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from conf.check import ConfigError
from conf.groups import CONF, search_path
from conf.schema import C, plain, validate

# Hydra 1.3 behaves like 1.1 without this argument; 1.4 has only one behaviour, and warns about the argument
VERSION_BASE = {"version_base": "1.3"} if hydra.__version__.startswith("1.3") else {}


def composed(command: str, overrides: Sequence[str], kind: type[C]) -> C:
    """Return the checked configuration that `python -m COMMAND OVERRIDES` would run.

    Args:
        command: "mdl" or "train".
        overrides: words of the command line, e.g. "dataset=digits".
        kind: the class of the command's configuration.

    Raises:
        HydraException, OmegaConfBaseException, ConfigError: for `conf.error_messages.explain`.
    """
    return validate(plain(unchecked(command, overrides)), kind)


def unchecked(command: str, overrides: Sequence[str]) -> DictConfig:
    """Compose a configuration as Hydra does; values may be missing."""
    in_job = GlobalHydra.instance().is_initialized()
    with contextlib.nullcontext() if in_job else initialize_config_dir(str(CONF), **VERSION_BASE):
        return compose(command, [*search_path(), *overrides])


def typed_overrides(overrides: Any) -> list[str]:
    """Return a run's overrides from `hydra.overrides` as typed, with references unresolved."""
    typed = OmegaConf.to_container(overrides.task)
    assert isinstance(typed, list)
    return typed


def override_value(value: Any) -> str:
    """Return a value in the syntax of Hydra's command line, with quotes only where Hydra needs them."""
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # null, true, numbers, lists
    return value if _is_read_as(value) else QuotedString(value.replace("${", "\\${"), Quote.double).with_quotes()


def _is_read_as(text: str) -> bool:
    """Return whether Hydra reads this text, unquoted as an override's value, as the text itself."""
    try:
        return "${" not in text and OverridesParser.create().parse_override(f"key={text}").value() == text
    except HydraException:
        return False


def jobs_of(command: str, overrides: Sequence[str]) -> Iterator[tuple[list[str], DictConfig]]:
    """Yield overrides and configuration of each job of `python -m COMMAND -m OVERRIDES`, in Hydra's order.

    Overrides of Hydra's own settings are checked and left out of the jobs. Each configuration is valid until the next
    one is requested.

    Raises:
        HydraException, OmegaConfBaseException, ConfigError: for `conf.error_messages.explain`.
    """
    with initialize_config_dir(str(CONF), **VERSION_BASE):
        loader = GlobalHydra.instance().config_loader()
        parsed = OverridesParser.create(config_loader=loader).parse_overrides(list(overrides))
        fixed = [str(override.input_line) for override in parsed if not override.is_sweep_override()]
        params = compose(command, [*search_path(), *fixed], return_hydra_config=True).hydra.sweeper.get("params") or {}
        composer = Composer(command, loader, search_path())
        for job in product(loader, params, [one for one in overrides if not one.lstrip("+~").startswith("hydra")]):
            yield job, composer(job)


def product(loader: ConfigLoader, params: Mapping[str, Any], overrides: Sequence[str]) -> list[list[str]]:
    """Return the overrides of each job of a sweep, in Hydra's order: the last of `choices_of` changes first."""
    return [list(job) for job in itertools.product(*choices_of(loader, params, overrides).values())]


def choices_of(loader: ConfigLoader, params: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, list[str]]:
    """Return the overrides that a sweep chooses from, by key.

    Args:
        loader: Hydra's configuration loader.
        params: an experiment's choices by key, which `overrides` replace.
        overrides: overrides of the command line.

    Raises:
        ConfigError: a sweep over an interval, or over no values.
    """
    choices: dict[str, list[str]] = {}
    words = [*(f"{key}={value}" for key, value in params.items()), *overrides]
    for override in OverridesParser.create(config_loader=loader).parse_overrides(words):
        key = override.get_key_element()
        if not override.is_sweep_override():
            values = [override.get_value_element_as_str()]
        elif override.is_discrete_sweep():
            values = [*override.sweep_string_iterator()]
        else:
            raise ConfigError(f"{override.input_line}: a sweep takes single values: name them, {key}=VALUE,VALUE")
        if not values:
            raise ConfigError(f"{override.input_line}: has no values, and the sweep no runs: name at least one")
        choices[key] = [f"{key}={value}" for value in values]
    return choices


class Composer:
    """A fast composer of many jobs' configurations.

    It composes each choice of groups once, and sets values in the result. Hydra itself would read the YAML files for
    every job, which takes 60 ms or more, so minutes for thousands of jobs. Hydra must be initialised. A returned
    configuration is valid until the next call.
    """

    def __init__(self, command: str, loader: ConfigLoader, search_overrides: Sequence[str] = ()) -> None:
        self._command = command
        self._search_overrides = search_overrides
        self._parser = OverridesParser.create(config_loader=loader)
        self._groups = set(loader.list_groups(""))
        self._composed: dict[tuple[str, ...], DictConfig] = {}

    def __call__(self, overrides: Sequence[str]) -> DictConfig:
        values, choices = [], []
        for override in self._parser.parse_overrides(list(overrides)):
            (values if self._is_value(override) else choices).append(override)
        composed = [str(choice.input_line) for choice in choices]
        # values are set in place, so a cached configuration is reused only by jobs that set the same keys
        key = (*composed, *(value.key_or_group for value in values))
        if key not in self._composed:
            self._composed[key] = compose(self._command, [*self._search_overrides, *composed])
        config = self._composed[key]
        if any(isinstance(override.value(), dict) for override in values):  # dictionaries are merged
            config = copy.deepcopy(config)
        for override in values:
            OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
        return config

    def _is_value(self, override: Override) -> bool:
        """Return whether an override sets an existing key, and does not choose a file, add a key or delete one."""
        if override.type is not OverrideType.CHANGE or override.package is not None:
            return False
        return override.key_or_group not in self._groups
