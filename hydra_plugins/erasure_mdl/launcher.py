"""Launchers on this machine: in this process, or over its devices. `slurm` has the one for clusters."""

import logging
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from conf.check import AtLeast1, ConfigError, check, section_of
from conf.sweep_directory import Sweep, SweepJob, process
from hydra_plugins.erasure_mdl.jobs import has_ended, in_turn, planned, unfinished

log = logging.getLogger(__name__)


class SweepLauncher(Launcher):
    """Launcher of a sweep's jobs: all are checked, and those started whose runs have not finished.

    Attributes:
        options: of hydra.launcher, as plain values.
    """

    def __init__(self, **options: Any) -> None:
        self.options = {
            key: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
            for key, value in options.items()
        }

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:  # noqa: ARG002
        setup_globals()
        self.require_options()
        if left := unfinished(planned(self.config, self.hydra_context, job_overrides)):
            self._start(left)
        return []  # results are on disk

    def require_options(self) -> None:
        """Refuse options that the launcher does not have, or values out of their ranges, before anything is started.

        Raises:
            ConfigError: names the option.
        """
        raise NotImplementedError

    def _start(self, jobs: Sequence[SweepJob]) -> None:
        raise NotImplementedError

    @property
    def shares_runs(self) -> bool:
        """Whether processes share the parts of a run."""
        return OmegaConf.select(self.config, "mdl.share") is True

    def carry_out(self, job: SweepJob) -> JobReturn:
        """Carry out a job in this process; it is refused if it is no longer the run that was planned."""
        process.planned_run = job.run.name
        config = self.hydra_context.config_loader.load_sweep_config(self.config, job.overrides)
        with open_dict(config):
            config.hydra.job.id, config.hydra.job.num = str(job.number), job.number
            config.hydra.sweep.dir = self.config.hydra.sweep.dir
        return run_job(
            hydra_context=self.hydra_context,
            task_function=self.task_function,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )


class InProcess(SweepLauncher):
    """Launcher of one job after the other in this process."""

    def require_options(self) -> None:
        for key, value in self.options.items():
            raise ConfigError(
                f"hydra.launcher.{key}={value}: a sweep in one process has no such option; "
                "name the launcher that has it, on the command line: hydra/launcher=local, hydra/launcher=slurm"
            )

    def _start(self, jobs: Sequence[SweepJob]) -> None:
        process.waits_for_others = False
        for job in in_turn(jobs, process.sweep, join=self.shares_runs):
            _ = self.carry_out(job).return_value  # raises where its end could not be noted, or it is yielded again


class Submitit(SweepLauncher):
    """Launcher of jobs in processes that submitit starts."""

    _EXECUTOR: str  # submitit's name of it
    _TYPES: Mapping[str, Any] = {"submitit_folder": str, "name": str, "timeout_min": AtLeast1}  # those of options
    _OURS: Sequence[str] = ()  # options that submitit does not know

    def require_options(self) -> None:
        """Check the options' types; of those that only submitit knows, it does so itself."""
        types = section_of({**dict.fromkeys(self.options, Any), **self._TYPES})
        self.options = check("hydra.launcher.", self.options, types)

    def checkpoint(self, *arguments: Any) -> Any:
        """Submit the call again with the same arguments: submitit's protocol for a task that is to be requeued."""
        from submitit.helpers import DelayedSubmission

        callable_: Any = self  # by `__call__` of its kind
        return DelayedSubmission(callable_, *arguments)

    def _begin(self, state: Any) -> None:
        """Restore in this process the state of Hydra in the one that launched the sweep."""
        logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
        Singleton.set_state(state)
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
        executor.update_parameters(**{f"{cluster}_{key}": value for key, value in options.items()})
        return executor


class Local(Submitit):
    """Launcher of processes on this machine, each with a GPU or a share of the cores, that take the runs in turn.

    A process that is killed ends its own run only: another goes on with it.
    """

    _EXECUTOR = "local"
    _OURS = ("workers",)
    _TYPES = {**Submitit._TYPES, "workers": Optional[AtLeast1]}  # noqa: RUF012, UP045

    def _start(self, jobs: Sequence[SweepJob]) -> None:
        directory, devices = process.sweep.directory.absolute(), self._devices()
        count = self.options["workers"] or len(devices)
        count = count if self.shares_runs else min(count, len(jobs))
        threads = str(max(1, len(os.sched_getaffinity(0)) // count))
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the launching process: see _wait
        threads_set = os.environ.get("OMP_NUM_THREADS")
        os.environ["OMP_NUM_THREADS"] = threads_set or threads
        try:
            workers = [
                self._executor().submit(self, devices[worker % len(devices)], directory, jobs, Singleton.get_state())
                for worker in range(count)
            ]
        finally:
            signal.signal(signal.SIGINT, before)
            if threads_set is None:
                del os.environ["OMP_NUM_THREADS"]
        log.info("%d runs in %d processes, %s threads each", len(jobs), count, threads_set or threads)
        ended = set[int]()
        try:
            self._wait(workers, jobs, ended)
        except KeyboardInterrupt:
            log.warning("stopping once every run has saved its training; launch the same command again to continue")
            for worker in workers:
                if not worker.done():
                    os.kill(int(worker.job_id), signal.SIGTERM)  # submitit names a local job by its process
            self._wait(workers, jobs, ended)
            raise
        for worker in workers:
            if not worker.paths.result_pickle.exists():  # it was killed; the file itself is not opened
                log.warning("a process ended early: see %s", worker.paths.stderr)

    def __call__(self, device: str, sweep: Path, jobs: Sequence[SweepJob], state: Any) -> None:
        """Carry out, in one of the processes, whatever jobs of the sweep are free, on the device."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # submitit ignores it
        self._begin(state)
        os.environ["CUDA_VISIBLE_DEVICES"] = device
        process.waits_for_others = False
        shared = Sweep(sweep)
        for job in in_turn(jobs, shared, join=self.shares_runs):
            returned = self.carry_out(job)
            if not has_ended(job, shared):
                _ = returned.return_value  # raises where not even its end could be noted

    def _devices(self) -> list[str]:
        """Return each process's CUDA_VISIBLE_DEVICES: a GPU, or, without one, an empty string for each core."""
        import torch

        from harness.device import pick_device

        device = pick_device(self.config.device)
        if device.type != "cuda":
            return [""] * len(os.sched_getaffinity(0))
        if device.index is not None:
            raise ConfigError(f"device={device}: hydra/launcher=local gives each process a GPU of its own: device=cuda")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return visible.split(",") if visible else [str(gpu) for gpu in range(torch.cuda.device_count())]

    def _wait(self, workers: Sequence[Any], jobs: Sequence[SweepJob], ended: set[int]) -> None:
        """Show how far the sweep is until the last process has ended.

        Args:
            workers: submitit's jobs, one for each process.
            jobs: what they carry out.
            ended: numbers of the jobs whose end has been shown; this adds to them.
        """
        from erasure.progress import Display

        with Display("sweep") as display:
            while alive := sum(not worker.done() for worker in workers):
                for job in jobs:
                    if job.number not in ended and has_ended(job, process.sweep):
                        ended.add(job.number)
                        log.info("#%d has ended, %d of %d", job.number, len(ended), len(jobs))
                display.update(len(ended) / len(jobs), f"{len(ended)} of {len(jobs)} runs ended, {alive} processes")
                time.sleep(0.2)
