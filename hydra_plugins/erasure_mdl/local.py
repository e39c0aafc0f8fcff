"""Sweeps over the GPUs, or the cores, of this machine."""

import logging
import os
import signal
import time
from collections.abc import Sequence
from typing import Any, Optional

from hydra.core.singleton import Singleton

from conf.check import AtLeast1, ConfigError
from harness.interruption import interruptible
from harness.sweep_files import SweepJob
from hydra_plugins.erasure_mdl.launcher import Submitit

log = logging.getLogger(__name__)


class Local(Submitit):
    """Launcher that starts processes on this machine, each with a GPU or a share of the cores, which share the runs.

    If a process is killed, only its current run stops, and another process continues that run.
    """

    _EXECUTOR = "local"
    _OURS = ("workers",)
    _TYPES = {**Submitit._TYPES, "workers": Optional[AtLeast1]}  # noqa: RUF012, UP045

    def _start(self, jobs: Sequence[SweepJob]) -> None:
        devices = self._devices()
        count = min(self.options["workers"] or len(devices), len(jobs))
        threads = str(max(1, len(os.sched_getaffinity(0)) // count))
        # Ctrl-C and a closed terminal are for the launching process, which passes them on
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)}
        threads_set = os.environ.get("OMP_NUM_THREADS")
        os.environ["OMP_NUM_THREADS"] = threads_set or threads
        try:
            workers = [
                self._executor().submit(self, devices[worker % len(devices)], jobs, Singleton.get_state())
                for worker in range(count)
            ]
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if threads_set is None:
                del os.environ["OMP_NUM_THREADS"]
        log.info("%d runs in %d processes, %s threads each", len(jobs), count, threads_set or threads)
        try:
            with interruptible(at_once=True):
                self._wait(workers, jobs)
        except (KeyboardInterrupt, SystemExit):
            log.warning("stopping once every run has saved its training; launch the same command again to continue")
            for worker in workers:
                if not worker.done():
                    os.kill(int(worker.job_id), signal.SIGTERM)  # submitit's id of a local job is its process id
            self._wait(workers, jobs)
            raise
        for worker in workers:
            if not worker.paths.result_pickle.exists():  # it was killed
                log.warning("a process ended early: see %s", worker.paths.stderr)

    def __call__(self, device: str, jobs: Sequence[SweepJob], hydra_state: Any) -> None:
        """Carry out free jobs of the sweep on the device, in one of the processes."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # submitit ignores it
        self._begin(hydra_state)
        os.environ["CUDA_VISIBLE_DEVICES"] = device
        self.carry_out_free(jobs)

    def _devices(self) -> list[str]:
        """Return CUDA_VISIBLE_DEVICES of each process: one entry per GPU, or an empty string per core without GPUs."""
        import torch

        from harness.device_and_precision import pick_device

        device = pick_device(self.config.device)
        if device.type != "cuda":
            return [""] * len(os.sched_getaffinity(0))
        if device.index is not None:
            raise ConfigError(f"device={device}: hydra/launcher=local gives each process a GPU of its own: device=cuda")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return visible.split(",") if visible else [str(gpu) for gpu in range(torch.cuda.device_count())]

    def _wait(self, workers: Sequence[Any], jobs: Sequence[SweepJob]) -> None:
        """Show the progress of the sweep until the last of its processes (submitit's jobs) has ended."""
        from erasure.progress import Display
        from harness.run_directory import RESULT

        with Display("sweep") as display:
            while alive := sum(not worker.done() for worker in workers):
                ended = sum((job.run / RESULT).exists() or self.sweep.failed(job.run.name) for job in jobs)
                display.update(ended / len(jobs), f"{ended} of {len(jobs)} runs ended, {alive} processes")
                time.sleep(0.2)
