"""The state of a run, from its directory, even if its process was killed."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from erasure.store.checked_files import DamagedFileError, read_json
from erasure.store.lease import DEFAULT_STALE_AFTER_S
from erasure.store.lease_holder import heartbeat
from harness.result import read_result
from harness.run_directory import CONFIG, LOCK, RESULT, STATE, is_step

Name = Literal["finished", "running", "failed", "interrupted", "missing"]
_NOTED = ("running", "finished", "failed", "interrupted")  # states in state.json
_LONGEST_ERROR = 2000  # characters


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
