"""The jobs of a sweep, for every launcher: checked before the first starts, without finished ones."""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.errors import HydraException
from hydra.types import HydraContext
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from conf.check import ConfigError
from conf.compose import Composer
from conf.errors import explain
from conf.sweep_directory import Sweep, process

log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 1.0


@dataclass(frozen=True)
class SweepJob:
    """One of a sweep's jobs, and the run that it was at the sweep's launch."""

    number: int
    overrides: list[str]
    run: Path


def planned(
    config: DictConfig, context: HydraContext, job_overrides: Sequence[Sequence[str]], first: int
) -> list[SweepJob]:
    """Return all jobs of a sweep's batch, numbered from `first`; the sweep notes them.

    Raises:
        ConfigError: one of them cannot be run.
    """
    assert process.directory_of is not None
    command = config.hydra.job.config_name
    composer = Composer(command, context.config_loader)
    jobs, refused = [], []
    for number, overrides in enumerate(job_overrides, first):
        try:
            jobs.append(SweepJob(number, list(overrides), process.directory_of(composer(overrides))))
        except (HydraException, OmegaConfBaseException) as error:
            refused.append(explain(error, command, overrides))
        except (ValueError, OSError) as error:
            refused.append(f"{' '.join(overrides)}: {explain(error, command, overrides)}")
    if refused:
        others = f" (as {len(refused) - 1} others of the {len(job_overrides)})" if len(refused) > 1 else ""
        raise ConfigError(f"{refused[0]}; nothing was started{others}")
    process.sweep.add_jobs([(job.overrides, job.run) for job in jobs])
    return jobs


def unfinished(jobs: Sequence[SweepJob]) -> list[SweepJob]:
    """Return the jobs whose runs have no result; the sweep notes that the others have finished."""
    left = [job for job in jobs if not note_finished(job)]
    if len(left) < len(jobs):
        log.info("%d of %d runs have finished before", len(jobs) - len(left), len(jobs))
    return left


def note_finished(job: SweepJob) -> bool:
    """Return whether the job's run has finished; if so, the sweep notes it."""
    from harness.run_directory import Run

    run = Run(job.run.parent, job.run.name)
    if run.result is None:
        return False
    run.tidy()
    outcome = {"exit_code": 0, "run_id": run.id, "result": str(job.run / "result.json")}
    process.sweep.record(job.number, {"overrides": job.overrides} | outcome)
    return True


def in_turn(jobs: Sequence[SweepJob], sweep: Sweep, *, join: bool) -> Iterator[SweepJob]:
    """Yield each job when no other process computes its run; the others come last, once their runs are free.

    Shells, processes and hosts share a sweep in this way, and a process never idles while a run is free.

    Args:
        jobs: in their order.
        sweep: where they note how they ended; one that has not, as another process was faster, is yielded again.
        join: whether runs that other processes compute are yielded once no other is left.
    """
    left, announced, rounds = list(jobs), False, 0
    while left:
        for job in left:
            if (join and rounds) or not computed_elsewhere(job.run):
                yield job
        ended = sweep.recorded()
        busy = [job for job in left if job.number not in ended]
        if len(busy) == len(left):
            if not announced:
                log.info("waiting for %d runs that other processes compute", len(busy))
                announced = True
            time.sleep(_LOOK_AGAIN_S)
        left, rounds = busy, rounds + 1


def computed_elsewhere(run: Path) -> str:
    """Return who computes a run, in words; empty where nobody does."""
    from erasure.store.heartbeat import file_system_time
    from harness.run_state import state_of

    if not run.is_dir():
        return ""
    state = state_of(run, file_system_time(run.parent))
    return state.detail if state.name == "running" else ""
