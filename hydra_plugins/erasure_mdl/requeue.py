"""A cluster's signals in a submitit task: any of three requeues it; submitit alone knows one."""

import logging
import os
import signal
import subprocess
from types import FrameType

log = logging.getLogger(__name__)

_GOING_ON = ("RUNNING", "SUSPENDED")  # states of a job that was neither cancelled nor requeued


def requeue_on_signals() -> None:
    """Let SIGUSR1, and SIGTERM unless SLURM is ending the job itself, do what submitit does on SIGUSR2 alone.

    While networks are trained, `harness.interruption` stands in front: it saves the training's state first.
    """
    from submitit.core.job_environment import JobEnvironment

    submitit_signal = JobEnvironment._usr_sig()
    requeue = signal.getsignal(submitit_signal)
    assert callable(requeue)
    left = False

    def leave(number: int, frame: FrameType | None) -> None:
        nonlocal left
        if left:
            return  # SLURM's SIGTERM to the job that has just been requeued
        left = True
        if number == signal.SIGTERM and not _goes_on():
            log.warning("SLURM ends this job: stopping")
            raise SystemExit(128 + number)
        requeue(number, frame)

    for number in {signal.SIGTERM, signal.SIGUSR1, submitit_signal}:
        signal.signal(number, leave)


def _goes_on() -> bool:
    """Return whether SLURM means this job to run: not cancelled, not requeued already. True without SLURM."""
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
