"""The state of a run, from its directory, even if its process was killed."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Literal

from erasure.progress import duration
from erasure.store.checked_files import DamagedFileError, read_json
from erasure.store.lease import DEFAULT_STALE_AFTER_S
from erasure.store.lease_holder import heartbeat
from harness.result import read_result
from harness.run_directory import CONFIG, LOCK, RESULT, STATE, is_step
from harness.run_ids import kind_of

Name = Literal["finished", "running", "failed", "interrupted", "missing"]
_NOTED = ("running", "finished", "failed", "interrupted")  # states in state.json
_LONGEST_ERROR = 2000  # characters
_MOST_READ = 20  # finished runs of a kind that an estimate reads, so that launches stay fast


@dataclass(frozen=True)
class State:
    """The state of a run.

    Attributes:
        name: "finished": the run has a result. "running": its process has a recent heartbeat. "failed": it ended with
            an error. "interrupted": it was stopped or killed, and continues when it is launched again. "missing": it
            was never started.
        detail: the heartbeat of a running process, or why the run ended.
    """

    name: Name
    detail: str = ""


def state_of(directory: Path, now: float) -> State:
    """Return the state of the run in `directory`, which may be untrusted.

    Args:
        directory: the run's directory.
        now: `erasure.store.lease_holder.file_system_time` of its parent folder.
    """
    if directory.is_symlink():
        return State("failed", "a link, which is not followed: ask for the folder that it leads to")
    try:
        names = os.listdir(directory)  # noqa: PTH208 (a third of the time)
    except FileNotFoundError:
        return State("missing")
    except OSError as error:
        return State("failed", f"cannot be read: {error}")
    try:
        read_result(directory / RESULT)
        return State("finished")
    except FileNotFoundError:
        pass
    except ValueError as error:
        return State("failed", str(error)[:_LONGEST_ERROR])
    beat = heartbeat(directory / LOCK) if LOCK in names else None
    if beat is not None and not beat.gone and abs(now - beat.at) <= DEFAULT_STALE_AFTER_S:
        steps = sum(map(is_step, names))  # the command defines steps: a training size, a seed at a size, ...
        done = f", steps finished: {steps}" if steps else ""
        detail = f"{beat.holder}, heartbeat {max(0, now - beat.at):.0f} s ago{done}"
        return State("running", detail)
    if STATE not in names:
        return State("missing") if CONFIG not in names else State("interrupted", "killed")
    try:
        name, error = read_state(directory)
    except (DamagedFileError, OSError) as damage:
        return State("failed", f"state.json is damaged: {damage}")
    if name == "failed":
        return State("failed", error)
    detail = error or (f"killed: {beat.holder} is gone" if beat is not None else "killed")
    return State("interrupted", detail)


def expected_time(runs: Sequence[Path]) -> str:
    """Return a line on the time that runs take, the mean of finished runs of their kind (`kind_of`) in the same folder.

    Args:
        runs: directories of the runs, in one folder.

    Returns:
        The line; empty if no run of these kinds has finished.
    """
    took: dict[str, list[float]] = {kind_of(run.name): [] for run in runs}
    for path in runs[0].parent.glob(f"*/{RESULT}"):
        of_kind = took.get(kind_of(path.parent.name))
        if of_kind is not None and len(of_kind) < _MOST_READ:
            with contextlib.suppress(ValueError, OSError):  # a damaged result has no time
                of_kind.append(read_result(path).timing.seconds or 0.0)
    known = [mean(seconds) for run in runs if (seconds := took[kind_of(run.name)])]
    if not known:
        return ""
    unknown = f"; no estimate for {len(runs) - len(known)}" if len(known) < len(runs) else ""
    runs_text = "one run" if len(known) == 1 else f"{len(known)} runs"
    took_so_far = "as finished runs of their dataset and model took"
    return f"{runs_text}: about {duration(sum(known))} of computing, {took_so_far}{unknown}"


def read_state(directory: Path) -> tuple[str, str]:
    """Return the state in state.json (one of `_NOTED`), and the error that ended the run.

    Raises:
        DamagedFileError: the file was edited or damaged, or belongs to another run.
        OSError: the file cannot be read.
    """
    written = read_json(directory / STATE)
    if written.get("run") != directory.name or written.get("state") not in _NOTED:
        raise DamagedFileError(f"{directory / STATE} is another run's")
    return written["state"], str(written.get("error", ""))[:_LONGEST_ERROR]
