"""Launchers on this machine: in this process, or over its devices. `slurm` has the one for clusters."""

import logging
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, setup_globals
from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
from hydra_plugins.hydra_submitit_launcher.submitit_launcher import BaseSubmititLauncher
from omegaconf import OmegaConf

from conf.check import AtLeast1, ConfigError, check, section_of
from conf.sweep import Sweep, process
from hydra_plugins.erasure_mdl.jobs import SweepJob, in_turn, planned, unfinished

log = logging.getLogger(__name__)

Overrides = Sequence[Sequence[str]]


class InProcess(BasicLauncher):
    """Launcher of one job after the other in this process."""

    def __init__(self, **others: Any) -> None:
        super().__init__()
        self._others = others

    def launch(self, job_overrides: Overrides, initial_job_idx: int) -> Sequence[JobReturn]:
        for key, value in self._others.items():
            raise ConfigError(
                f"hydra.launcher.{key}={value}: a sweep in one process has no such option; "
                "name the launcher that has it, on the command line: hydra/launcher=local, hydra/launcher=slurm"
            )
        process.waits_for_others = False
        returned: list[JobReturn] = []
        left = unfinished(planned(self, job_overrides, initial_job_idx))
        for job in in_turn(left, process.sweep, join=shared(self)):
            process.planned_run = job.run.name
            returned += super().launch([job.overrides], job.number)
            _ = returned[-1].return_value  # raises where not even its end could be noted: it would be given out again
        return returned


class Submitit(BaseSubmititLauncher):
    """Launcher of jobs in processes that submitit starts. Results are on disk, where the driver reads them."""

    _OPTIONS: Mapping[str, Any] = {"submitit_folder": str, "name": str, "timeout_min": AtLeast1}  # and their types

    def launch(self, job_overrides: Overrides, initial_job_idx: int) -> Sequence[JobReturn]:
        setup_globals()
        self.require_options()
        if left := unfinished(planned(self, job_overrides, initial_job_idx)):
            self._start(left)
        return []  # results are on disk

    def require_options(self) -> None:
        """Check the launcher's options before anything is started; those that only submitit knows are left to it.

        Raises:
            ConfigError: a value of the wrong type, or out of range.
        """
        types = section_of({**dict.fromkeys(self.params, Any), **self._OPTIONS})
        self.params = check("hydra.launcher.", self.params, types)

    def _start(self, jobs: Sequence[SweepJob]) -> None:
        raise NotImplementedError

    def _run(self, job: SweepJob, state: Any) -> JobReturn:
        """Do a job in the process at hand; planned as the run that it was when the sweep was launched."""
        process.planned_run = job.run.name
        return super().__call__(job.overrides, "hydra.sweep.dir", job.number, str(job.number), state)

    def _executor(self) -> Any:
        import submitit

        cluster = self._EXECUTOR
        parameters = {key: value for key, value in self.params.items() if key not in self._OURS}
        executor = submitit.AutoExecutor(
            parameters.pop("submitit_folder"),
            cluster=cluster,
            **{f"{cluster}_max_num_timeout": parameters.pop("max_num_timeout", 100)},
        )
        shared = OmegaConf.structured(BaseQueueConf).keys()
        executor.update_parameters(
            **{key if key in shared else f"{cluster}_{key}": value for key, value in parameters.items()}
        )
        return executor

    _OURS: Sequence[str] = ()  # parameters that submitit does not know


class Local(Submitit):
    """Launcher of processes on this machine, each with a GPU or a share of the cores, that take the runs in turn.

    A process that is killed ends its own run only: another goes on with it.
    """

    _EXECUTOR = "local"
    _OURS = ("workers",)
    _OPTIONS = {**Submitit._OPTIONS, "workers": Optional[AtLeast1]}  # noqa: RUF012, UP045

    def _start(self, jobs: Sequence[SweepJob]) -> None:
        directory, devices = process.sweep.directory.absolute(), self._devices()
        count = self.params["workers"] or len(devices)
        count = count if shared(self) else min(count, len(jobs))
        threads = str(max(1, len(os.sched_getaffinity(0)) // count))
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's: see _wait
        said = os.environ.get("OMP_NUM_THREADS")
        os.environ["OMP_NUM_THREADS"] = said or threads
        try:
            workers = [
                self._executor().submit(self, devices[worker % len(devices)], directory, jobs, Singleton.get_state())
                for worker in range(count)
            ]
        finally:
            signal.signal(signal.SIGINT, before)
            if said is None:
                del os.environ["OMP_NUM_THREADS"]
        log.info("%d runs in %d processes, %s threads each", len(jobs), count, said or threads)
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

    def __call__(self, device: str, sweep: Path, jobs: Sequence[SweepJob], state: Any) -> None:  # type: ignore[override]
        """Carry out, in one of the processes, whatever jobs of the sweep are free, on the device."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # submitit ignores it
        logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
        os.environ["CUDA_VISIBLE_DEVICES"] = device
        process.waits_for_others = False
        here = Sweep(sweep)
        for job in in_turn(jobs, here, join=shared(self)):
            returned = self._run(job, state)
            if job.number not in here.recorded():
                _ = returned.return_value  # raises where not even its end could be noted

    def _devices(self) -> list[str]:
        """Return each process's CUDA_VISIBLE_DEVICES: a GPU, or, without one, an empty string for each core."""
        import torch

        from harness.device import pick_device

        assert self.config is not None
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

        numbers = {job.number for job in jobs}
        with Display("sweep") as display:
            while alive := sum(not worker.done() for worker in workers):
                for number in sorted(process.sweep.recorded() & numbers - ended):
                    ended.add(number)
                    log.info("#%d has ended, %d of %d", number, len(ended), len(jobs))
                display.update(len(ended) / len(jobs), f"{len(ended)} of {len(jobs)} runs ended, {alive} processes")
                time.sleep(0.2)


def shared(launcher: Any) -> bool:
    """Return whether processes share the parts of a run."""
    return OmegaConf.select(launcher.config, "mdl.share") is True
