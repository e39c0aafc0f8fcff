"""Jobs of a sweep divided among the processes that share it: each takes those that no other computes."""

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.sweep_files import Sweep, SweepJob

log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 1.0


def has_finished(job: SweepJob) -> bool:
    """Return whether the job's run has a result; if so, delete what a killed process may have left of it."""
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
    """Yield each job when no other process computes its run; the others come last, once their runs are free.

    Shells, processes and hosts share a sweep in this way, and a process never idles while a run is free.

    Args:
        jobs: in their order; one that has not ended once it was yielded, as another process was faster, comes again.
            One that has failed in another process is tried in this one as well: that machine may have less memory.
        sweep: where failed jobs are noted.
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
    """Return who computes a run, in words; empty where nobody does."""
    from erasure.store.lease_holder import file_system_time
    from harness.run_state import state_of

    if not run.is_dir():
        return ""
    state = state_of(run, file_system_time(run.parent))
    return state.detail if state.name == "running" else ""
