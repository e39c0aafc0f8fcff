"""Division of a sweep's jobs among processes: each process takes jobs that no other process computes."""

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.sweep_files import Sweep, SweepJob

log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 1.0


def has_finished(job: SweepJob) -> bool:
    """Return whether the job's run has a result; if so, delete leftover files of a killed process."""
    from harness.run_directory import Run

    run = Run(job.run.parent, job.run.name)
    if run.result is None:
        return False
    run.tidy()
    return True


def has_ended(job: SweepJob, sweep: Sweep) -> bool:
    """Return whether the job's run has a result, or has failed since the sweep's launch."""
    return sweep.failed(job.run.name) or has_finished(job)


def in_turn(jobs: Sequence[SweepJob], sweep: Sweep) -> Iterator[SweepJob]:
    """Yield the jobs whose runs no other process computes; jobs of busy runs come later, once their runs are free.

    Shells, processes and hosts share a sweep in this way, and no process idles while a run is free.

    Args:
        jobs: jobs in their order. A job that has not ended after it was yielded, because another process was faster, is
            yielded again. A job that failed in another process is also tried here, as that machine may have less
            memory.
        sweep: sweep that records failed jobs.
    """
    left, announced = list(jobs), False
    while left:
        for job in left:
            if not has_finished(job) and not computed_elsewhere(job.run):
                yield job
        busy = [job for job in left if not has_ended(job, sweep)]
        if len(busy) == len(left):
            if not announced:
                log.info("waiting for %d runs that other processes compute", len(busy))
                announced = True
            time.sleep(_LOOK_AGAIN_S)
        left = busy


def computed_elsewhere(run: Path) -> str:
    """Describe the process that computes a run; return an empty string if there is none."""
    from erasure.store.lease_holder import file_system_time
    from harness.run_state import state_of

    if not run.is_dir():
        return ""
    state = state_of(run, file_system_time(run.parent))
    return state.detail if state.name == "running" else ""
