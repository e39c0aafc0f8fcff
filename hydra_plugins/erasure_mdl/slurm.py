"""Sweeps on a cluster as SLURM job arrays, whose tasks are requeued on any of three signals."""

import logging
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from types import FrameType
from typing import Any, Optional

from hydra.core.singleton import Singleton
from omegaconf import OmegaConf

from conf.check import AtLeast1, ConfigError, Positive
from conf.command_process import FAILED
from harness.sweep_files import SweepJob
from hydra_plugins.erasure_mdl.launcher import Submitit
from hydra_plugins.erasure_mdl.shared_sweep import computed_elsewhere, has_ended

log = logging.getLogger(__name__)

_GOING_ON = ("RUNNING", "SUSPENDED")  # states of a job that was neither cancelled nor requeued


class SlurmArray(Submitit):
    """Launcher that submits all jobs of a sweep at once, as job arrays of the cluster's maximum size."""

    _EXECUTOR = "slurm"
    _OURS = ("wait",)
    _TYPES = {  # noqa: RUF012
        **Submitit._TYPES,
        **dict.fromkeys(("array_parallelism", "signal_delay_s"), AtLeast1),
        "wait": bool,
        "max_num_timeout": int,
        "cpus_per_task": Optional[AtLeast1],  # noqa: UP045
        "mem_gb": Optional[Positive],  # noqa: UP045
        "setup": list[str] | None,
    }

    def require_options(self) -> None:
        super().require_options()
        if self.config.device == OmegaConf.select(self.config, "train.precision") == "auto":
            raise ConfigError(
                "device=auto: where tasks run there may be another kind of device than here, and then "
                "train.precision=auto is another: add device=cuda, or device=cpu; nothing was started"
            )

    def _start(self, jobs: Sequence[SweepJob]) -> None:
        free = [job for job in jobs if not computed_elsewhere(job.run)]
        tasks = self._submit(free) if free else []
        if not self.options["wait"]:
            self.sweep.detached = True
            return
        self._wait(tasks)
        for job in (job for job in jobs if job not in free):
            if not has_ended(job, self.sweep):
                error = f"runs already ({computed_elsewhere(job.run) or 'it has ended'}): left to it"
                self.sweep.fail(job.run.name, error, FAILED)

    def __call__(self, job: SweepJob, hydra_state: Any) -> None:
        """Carry out a job in its task; if it fails, the task fails too, so that the cluster records the failure."""
        self._begin(hydra_state)
        requeue_on_signals()
        _ = self.carry_out(job, wait=True).return_value  # raises what the job raised

    def _submit(self, jobs: Sequence[SweepJob]) -> list[Any]:
        """Submit the jobs.

        Raises:
            ConfigError: there is no cluster, or it does not accept the sweep.
        """
        tasks: list[Any] = []
        try:
            size = _max_array_size()
            for start in range(0, len(jobs), size):
                array = jobs[start : start + size]
                tasks += self._executor().map_array(self, array, [Singleton.get_state()] * len(array))
        except (RuntimeError, OSError) as error:  # submitit's errors contain sbatch's message
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = next((line for line in lines if "error" in line.lower()), lines[0] if lines else repr(error))
            begun = f" ({len(tasks)} jobs are submitted)" if tasks else ""
            raise ConfigError(f"hydra/launcher: slurm does not take the sweep{begun}: {reason}") from error
        ids = dict.fromkeys(task.job_id.split("_")[0] for task in tasks)
        log.info("submitted %d jobs as %s; they go on if this process ends", len(tasks), ", ".join(ids))
        return tasks

    def _wait(self, tasks: Sequence[Any]) -> None:
        """Wait for every task; if one fails or is killed, the others continue."""
        from submitit.core.utils import UncompletedJobError

        for task in tasks:
            try:
                task.results()
            except UncompletedJobError as error:  # includes errors that a task raised and recorded
                log.debug("%s", error)
                log.info("job %s did not finish: see %s", task.job_id, task.paths.stderr)


def _max_array_size() -> int:
    """Return the cluster's maximum number of tasks in an array."""
    try:
        shown = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True, check=False).stdout
    except OSError:  # without SLURM, submitit's message is clearer
        shown = ""
    match = re.search(r"^MaxArraySize\s*=\s*(\d+)", shown, re.MULTILINE)
    return int(match[1]) if match else 1001  # SLURM's default


def requeue_on_signals() -> None:
    """Requeue the job also on SIGUSR1 and, unless SLURM is ending the job, on SIGTERM; submitit uses one signal.

    While networks are trained, the handler of `harness.interruption` runs first and saves a checkpoint.
    """
    from submitit.core.job_environment import JobEnvironment

    submitit_signal = signal.Signals[f"SIG{JobEnvironment.USR_SIG}"]
    requeue = signal.getsignal(submitit_signal)
    assert callable(requeue)
    left = False

    def leave(number: int, frame: FrameType | None) -> None:
        nonlocal left
        if left:
            return  # SLURM sends SIGTERM to a job that has just been requeued
        left = True
        if number == signal.SIGTERM and not _goes_on():
            log.warning("SLURM ends this job: stopping")
            raise SystemExit(128 + number)
        requeue(number, frame)

    for number in {signal.SIGTERM, signal.SIGUSR1, submitit_signal}:
        signal.signal(number, leave)


def _goes_on() -> bool:
    """Return whether the job is neither cancelled nor requeued already, or does not run under SLURM."""
    job = os.environ.get("SLURM_ARRAY_JOB_ID")
    job = f"{job}_{os.environ['SLURM_ARRAY_TASK_ID']}" if job else os.environ.get("SLURM_JOB_ID")
    if job is None or os.environ.get("SUBMITIT_EXECUTOR") != "slurm":
        return True
    command = ["squeue", "--noheader", "--jobs", job, "--format", "%T"]
    try:
        state = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return False
    return state in _GOING_ON
