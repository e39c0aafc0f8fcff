"""The sweeper: the product of all choices on the command line."""

from collections.abc import Mapping
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from conf.compose import product
from conf.sweep_process import begin_sweep


class Product(Sweeper):
    """The product of all choices. Launchers check each job themselves, in milliseconds, where Hydra's takes minutes.

    Args:
        params: choices that an experiment makes, by key; the command line's replace them.
    """

    def __init__(self, params: Mapping[str, Any] | None) -> None:
        self.params = params or {}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        begin_sweep(config)
        self.hydra_context = hydra_context
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        assert self.hydra_context is not None
        assert self.launcher is not None
        jobs = product(self.hydra_context.config_loader, self.params, arguments)
        return self.launcher.launch(jobs, initial_job_idx=0)
