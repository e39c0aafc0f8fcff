"""The runs that a sweep's overrides ask for: the same jobs that Hydra makes of them, and the run ids of these."""

import contextlib
import copy
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf

from conf.cli import Verb, checked_job
from conf.groups import CONF
from conf.schema import ConfigError
from erasure.storage import DamagedFileError, fingerprint, read_json, write_json
from train.run import RESULTS_VERSION

VERBS = ("mdl", "train", "sample_info")
_IDENTITY = ("train/job.py", "train/run.py")  # code that says what identifies a run


@dataclass(frozen=True)
class Wanted:
    """One job of a sweep: its overrides, and where its run is or would be."""

    overrides: list[str]
    directory: Path


def verb_named(name: str) -> Verb:
    """The command `python -m NAME`.

    Raises:
        ConfigError: there is none; nothing is imported.
    """
    if name not in VERBS:
        raise ConfigError(f"{name!r} is no verb: choose from {', '.join(VERBS)}")
    return importlib.import_module(f"{name}.__main__").VERB


def wanted(verb: Verb, overrides: Sequence[str], memory: Path | None = None) -> list[Wanted]:
    """The jobs of `python -m VERB -m OVERRIDES`, in Hydra's order.

    Args:
        verb: the command.
        overrides: of the sweep; those of Hydra's own settings say where and how, and are passed over.
        memory: folder that keeps the answer for the same question, the same YAML files and the same code.

    Raises:
        HydraException, OmegaConfBaseException, ConfigError: for `conf.errors.explain`.
    """
    overrides = [override for override in overrides if not override.lstrip("+~").startswith("hydra")]
    kept = memory / f"{fingerprint(_question(verb, overrides))}.json" if memory else None
    if kept and kept.exists():
        with contextlib.suppress(DamagedFileError):
            return [Wanted(job["overrides"], Path(job["run"])) for job in read_json(kept)["jobs"]]
    jobs = [Wanted(job, directory) for job, directory in _directories(verb, overrides)]
    if kept:
        with contextlib.suppress(OSError):  # the sweep may be somebody else's
            write_json(kept, {"jobs": [{"overrides": job.overrides, "run": str(job.directory)} for job in jobs]})
    return jobs


def _question(verb: Verb, overrides: Sequence[str]) -> dict[str, Any]:
    """All that run ids depend on, but for the content of data files."""
    sources = [*sorted(CONF.rglob("*.yaml")), *(CONF.parent / name for name in _IDENTITY)]
    texts = {str(path.relative_to(CONF.parent)): path.read_text() for path in sources}
    return {"verb": verb.name, "overrides": list(overrides), "version": RESULTS_VERSION, "sources": texts}


def _directories(verb: Verb, overrides: Sequence[str]) -> Iterator[tuple[list[str], Path]]:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        parser = OverridesParser.create(config_loader=loader)
        plain = [override for override in overrides if not parser.parse_override(override).is_sweep_override()]
        parameters = compose(verb.name, plain, return_hydra_config=True).hydra.sweeper.get("params") or {}
        everything = parser.parse_overrides([*(f"{key}={value}" for key, value in parameters.items()), *overrides])
        (jobs,) = BasicSweeper.split_arguments(everything, None)
        composed = _Composer(verb.name, loader, parser)
        for job in jobs:
            yield job, checked_job(verb, composed(job))


class _Composer:
    """Configurations of many jobs, each choice of groups composed once, and values set in it.

    Hydra composes each from its YAML files, for 60 ms or more: minutes for thousands of jobs.
    """

    def __init__(self, verb: str, loader: ConfigLoader, parser: OverridesParser) -> None:
        self._verb, self._loader, self._parser = verb, loader, parser
        self._groups = set(loader.list_groups(""))
        self._composed: dict[tuple[str, ...], DictConfig] = {}

    def __call__(self, overrides: Sequence[str]) -> DictConfig:
        values, choices = [], []
        for override in self._parser.parse_overrides(list(overrides)):
            (values if self._is_value(override) else choices).append(override)
        key = tuple(str(choice.input_line) for choice in choices)
        if key not in self._composed:
            self._composed[key] = compose(self._verb, list(key))
        config = copy.deepcopy(self._composed[key])
        for override in values:
            OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
        return config

    def _is_value(self, override: Override) -> bool:
        """Whether it sets a key that exists, rather than choosing a file, adding or deleting."""
        if override.type is not OverrideType.CHANGE or override.package is not None:
            return False
        return override.key_or_group not in self._groups
