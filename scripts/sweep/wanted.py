"""The runs that a sweep's overrides ask for: the same jobs that Hydra makes of them, and the run ids of these."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser

from conf.cli import Verb, checked_job
from conf.compose import Composer
from conf.groups import CONF, search_path


@dataclass(frozen=True)
class Wanted:
    """One job of a sweep: its overrides, and where its run is or would be."""

    overrides: list[str]
    directory: Path


def wanted(verb: Verb, overrides: Sequence[str]) -> list[Wanted]:
    """The jobs of `python -m VERB -m OVERRIDES`, in Hydra's order.

    Args:
        verb: the command.
        overrides: of the sweep; those of Hydra's own settings say where and how, and are passed over.

    Raises:
        HydraException, OmegaConfBaseException, ConfigError: for `conf.errors.explain`.
    """
    overrides = [override for override in overrides if not override.lstrip("+~").startswith("hydra")]
    return [Wanted(job, directory) for job, directory in _directories(verb, overrides)]


def _directories(verb: Verb, overrides: Sequence[str]) -> Iterator[tuple[list[str], Path]]:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        parser = OverridesParser.create(config_loader=loader)
        plain = [override for override in overrides if not parser.parse_override(override).is_sweep_override()]
        parameters = (
            compose(verb.name, [*search_path(), *plain], return_hydra_config=True).hydra.sweeper.get("params") or {}
        )
        everything = parser.parse_overrides([*(f"{key}={value}" for key, value in parameters.items()), *overrides])
        (jobs,) = BasicSweeper.split_arguments(everything, None)
        composed = Composer(verb.name, loader, search_path())
        for job in jobs:
            yield job, checked_job(verb, composed(job))
