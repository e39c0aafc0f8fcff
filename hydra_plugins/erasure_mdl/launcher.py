"""Base classes of launchers, which check all jobs before the first one starts, and the launcher in this process."""

import functools
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, run_job, setup_globals
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from conf.check import AtLeast1, ConfigError, check, section_of
from conf.command_process import make_folder
from conf.compose import Composer
from conf.error_messages import explain
from conf.groups import CONF
from conf.terminal import show_log
from harness.command import Command
from harness.sweep_files import Sweep, SweepJob
from hydra_plugins.erasure_mdl.shared_sweep import has_ended, has_finished, in_turn

log = logging.getLogger(__name__)


def planned(command: Command, context: HydraContext, job_overrides: Sequence[Sequence[str]]) -> list[SweepJob]:
    """Return all jobs of a sweep.

    Raises:
        ConfigError: a job cannot be run, or two jobs are the same run.
    """
    composer = Composer(command.name, context.config_loader)
    jobs, refused, by_run = [], [], dict[Path, Sequence[str]]()
    for number, overrides in enumerate(job_overrides):
        try:
            jobs.append(SweepJob(number, list(overrides), command.run_directory(composer(overrides))))
            if (other := by_run.setdefault(jobs[-1].run, overrides)) is not overrides:
                raise ConfigError(f"is the same run as {' '.join(other)}: name one of them")
        except (HydraException, OmegaConfBaseException) as error:
            refused.append(explain(error, command.name, overrides))
        except (ValueError, OSError) as error:
            refused.append(f"{' '.join(overrides)}: {explain(error, command.name, overrides)}")
    if refused:
        others = f" (as {len(refused) - 1} others of the {len(job_overrides)})" if len(refused) > 1 else ""
        raise ConfigError(f"{refused[0]}; nothing was started{others}")
    return jobs


class SweepLauncher(Launcher):
    """Launcher that checks all jobs of a sweep, and starts those whose runs have not finished.

    Attributes:
        options: options of hydra.launcher, as plain values.
        command: the command.
    """

    def __init__(self, **options: Any) -> None:
        self.options = {
            key: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
            for key, value in options.items()
        }

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        assert isinstance(task_function, Command)
        self.hydra_context, self.command, self.config = hydra_context, task_function, config

    @property
    def sweep(self) -> Sweep:
        """The sweep that is launched."""
        assert self.command.sweep is not None
        return self.command.sweep

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:  # noqa: ARG002
        setup_globals()
        self.require_options()
        jobs = planned(self.command, self.hydra_context, job_overrides)
        make_folder("runs_dir", self.config.runs_dir)
        self.sweep.begin(jobs)
        left = [job for job in jobs if not has_finished(job)]
        if len(left) < len(jobs):
            log.info("%d of %d runs have finished before", len(jobs) - len(left), len(jobs))
        if left:
            from harness.run_state import expected_time

            if line := expected_time([job.run for job in left]):
                log.info(line)
            self._start(left)
        return []  # results are on disk

    def require_options(self) -> None:
        """Refuse unknown options and values out of range, before anything is started.

        Raises:
            ConfigError: names the option.
        """
        raise NotImplementedError

    def _start(self, jobs: Sequence[SweepJob]) -> None:
        raise NotImplementedError

    def carry_out_free(self, jobs: Sequence[SweepJob]) -> None:
        """Carry out one by one, in this process, the jobs whose runs no other process computes."""
        for job in in_turn(jobs, self.sweep):
            returned = self.carry_out(job, wait=False)
            if not has_ended(job, self.sweep):
                _ = returned.return_value  # raises errors that were not recorded; otherwise the job comes again

    def carry_out(self, job: SweepJob, *, wait: bool) -> JobReturn:
        """Carry out a job in this process; refuse it if it is no longer the planned run."""
        config = self.hydra_context.config_loader.load_sweep_config(self.config, job.overrides)
        with open_dict(config):
            config.hydra.job.id, config.hydra.job.num = str(job.number), job.number
            config.hydra.sweep.dir = self.config.hydra.sweep.dir
        return run_job(
            hydra_context=self.hydra_context,
            task_function=functools.partial(self.command, planned=job.run.name, wait=wait),
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )


class InProcess(SweepLauncher):
    """Launcher that carries out jobs one after the other in this process."""

    def require_options(self) -> None:
        check("hydra.launcher.", self.options, section_of({}))

    def _start(self, jobs: Sequence[SweepJob]) -> None:
        make_folder("cache_dir", self.config.cache_dir)
        self.carry_out_free(jobs)


class Submitit(SweepLauncher):
    """Launcher that carries out jobs in processes started by submitit."""

    _EXECUTOR: str  # submitit's name of the executor
    _TYPES: Mapping[str, Any] = {"submitit_folder": str, "name": str, "timeout_min": AtLeast1}  # types of options
    _OURS: Sequence[str] = ()  # options that are not submitit's

    def require_options(self) -> None:
        """Check the types of the options in `_TYPES`; submitit checks the others."""
        types = section_of({**dict.fromkeys(self.options, Any), **self._TYPES})
        self.options = check("hydra.launcher.", self.options, types)

    def checkpoint(self, *arguments: Any) -> Any:
        """Submit the call again with the same arguments; submitit calls this method to requeue a task."""
        from submitit.helpers import DelayedSubmission

        callable_: Any = self  # subclasses define `__call__`
        return DelayedSubmission(callable_, *arguments)

    def _begin(self, hydra_state: Any) -> None:
        """Restore the launching process's state of Hydra, import path and logging in this process."""
        sys.path.insert(0, str(CONF.parent))  # as in mdl/__main__.py
        show_log(logging.INFO, force=True)
        Singleton.set_state(hydra_state)
        setup_globals()

    def _executor(self) -> Any:
        import submitit

        cluster = self._EXECUTOR
        options = {key: value for key, value in self.options.items() if key not in self._OURS}
        executor = submitit.AutoExecutor(
            options.pop("submitit_folder"),
            cluster=cluster,
            **{f"{cluster}_max_num_timeout": options.pop("max_num_timeout", 100)},
        )
        try:
            executor.update_parameters(**{f"{cluster}_{key}": value for key, value in options.items()})
        except NameError as error:  # raised by submitit; its first line names the option and the known ones
            raise ConfigError(f"hydra.launcher: {str(error).splitlines()[0]}; nothing was started") from error
        return executor
