"""The sweeper: the product of all choices on the command line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, flag_override

from conf.compose import product, typed_overrides
from harness.command import Command
from harness.sweep_files import Sweep, sweep_name


class Product(Sweeper):
    """A sweeper over the product of all choices.

    Unlike Hydra's sweeper, it leaves the checks of jobs to launchers, which take milliseconds instead of minutes.

    Args:
        params: choices of an experiment, by key; choices on the command line replace them.
    """

    def __init__(self, params: Mapping[str, Any] | None) -> None:
        self.params = params or {}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        assert isinstance(task_function, Command)
        task_function.sweep = _requested(config)
        self.hydra_context = hydra_context
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        assert self.hydra_context is not None
        assert self.launcher is not None
        jobs = product(self.hydra_context.config_loader, self.params, arguments)
        return self.launcher.launch(jobs, initial_job_idx=0)


def _requested(config: DictConfig) -> Sweep:
    """Return the requested sweep, in a folder below hydra.sweep.dir, and set hydra.sweep.dir to that folder."""
    command = config.hydra.job.config_name
    parameters = [f"{key}={value}" for key, value in (config.hydra.sweeper.get("params") or {}).items()]
    words = [*parameters, *typed_overrides(config.hydra.overrides)]
    sweep = Sweep(Path(config.hydra.sweep.dir).expanduser() / sweep_name(command, words), command, words)
    with flag_override(config.hydra, ["readonly", "struct"], False):
        config.hydra.sweep.dir = str(sweep.directory)
    return sweep
