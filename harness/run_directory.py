"""A run on disk: its directory and its result."""

import contextlib
import fnmatch
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from conf.command_process import is_refusal
from erasure.store.atomic_files import remove, write_text
from erasure.store.checked_files import (
    DamagedFileError,
    file_checksum,
    load_tensors,
    read_json,
    save_tensors,
    write_json,
)
from erasure.store.lease import Lease
from erasure.store.regular_files import regular
from harness.loss_curves import CurveRow, write_curves
from harness.result import Result, as_json, read_result

log = logging.getLogger(__name__)

V = TypeVar("V")

LOCK = "run.lock"
CONFIG = "config.yaml"
CURVES = "curves.csv"
STATE = "state.json"
RESULT = "result.json"
_STEP = "step-"  # prefix of a step's files
_STEP_KINDS = (".json", ".safetensors")
_LEFTOVERS = (f"{_STEP}*", "checkpoint-*.safetensors", ".*.tmp", f"{LOCK}*")  # files that a finished run does not need

_LONGEST_S = 1e12  # seconds of a run: 30,000 years

RESULTS_VERSION = 2  # raise it when the numbers of a configuration change: runs then get new ids


@dataclass(frozen=True)
class Tensors:
    """Tensors computed by a step, with JSON values."""

    tensors: Mapping[str, Tensor]
    values: Mapping[str, Any] = field(default_factory=dict)


class Run:
    """The directory `root/run_id`: config.yaml, result.json once finished, curves.csv, log.txt, state.json.

    Several processes may work on the same run, so write only within a `claim`, which one process holds at a time. Use
    `step` for long computations: after an interruption, the values of finished steps are read from disk.
    """

    def __init__(self, root: Path | str, identity: str) -> None:
        self.id = identity
        self.directory = Path(root) / identity
        self._lease: Lease | None = None  # while this process computes the run
        self._since = time.monotonic()

    @contextlib.contextmanager
    def claim(self, *, wait: bool = True) -> Iterator[bool]:
        """Claim this run, so that no other process computes or writes it.

        Args:
            wait: whether to wait while a live process holds the claim; if false, False is yielded in that case.

        Yields:
            Whether this process holds the claim.
        """
        lease = Lease(self.directory / LOCK)
        if not self._take(lease, wait=wait):
            yield False
            return
        self._lease = lease
        try:
            yield True
        finally:
            self._lease = None
            lease.release()
            with contextlib.suppress(OSError):
                self.directory.rmdir()  # empty: the run was discarded

    def _take(self, lease: Lease, *, wait: bool) -> bool:
        while True:
            self.directory.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # another process has just discarded the run
                if not wait:
                    return lease.try_acquire()
                lease.acquire()
                return True

    def require_lease(self) -> None:
        """Check that this process still holds its claim.

        Raises:
            LeaseLostError: the lease expired, and another process took it.
        """
        if self._lease is not None:
            self._lease.require()

    @property
    def result(self) -> Result | None:
        """The result; None if the run has not finished, or if the file is damaged or belongs to another run.

        Raises:
            ValueError: the file cannot be opened, or the directory is a link.
        """
        if self.directory.is_symlink():
            raise ValueError(f"{self.directory} is a link, which is not followed: move the folder itself there")
        try:
            return read_result(self.directory / RESULT)
        except (FileNotFoundError, DamagedFileError):
            return None

    def start(self, config_yaml: str) -> None:
        """Write config.yaml and the state "running"; move an unusable result.json aside."""
        self.require_lease()
        self.directory.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path := self.directory / RESULT):  # unusable, as `result` is None
            aside = path.with_name(f"result.damaged-{time.time_ns()}.json")
            path.replace(aside)
            log.warning("%s was edited, damaged or is another run's: kept as %s, and computed again", path, aside.name)
        write_text(self.directory / CONFIG, config_yaml)
        self._since = time.monotonic()
        self._save_state("running")

    def finish(self, result: Result) -> None:
        """Write the result with the checksum of the curves, and delete the files of finished steps."""
        self.require_lease()
        curves = self.directory / CURVES
        checksum = file_checksum(curves) if curves.exists() else None
        write_json(self.directory / RESULT, as_json(replace(result, curves_checksum=checksum)))
        self._save_state("finished")
        self._delete_leftovers()

    def tidy(self) -> None:
        """Delete files that a process left in this finished run because it was killed after writing the result."""
        with contextlib.suppress(OSError):  # e.g. if the run is another user's
            if any(leftover(path.name) for path in self.directory.iterdir()):
                with self.claim(wait=False) as claimed:
                    if claimed:
                        self._delete_leftovers()

    def _delete_leftovers(self) -> None:
        for path in self.directory.iterdir():
            if leftover(path.name) and path.name != LOCK:
                remove(path)

    def fail(self, error: BaseException) -> None:
        """Record why the run ended early: it failed, or was interrupted and can be continued.

        A run is discarded if its configuration or data were refused before anything was computed.
        """
        state = "failed" if isinstance(error, Exception) else "interrupted"
        stopped = isinstance(error, KeyboardInterrupt)
        reason = (
            "stopped by Ctrl-C; launch it again to continue"
            if stopped
            else " ".join(f"{type(error).__name__}: {error}".split())
        )
        with contextlib.suppress(OSError):  # e.g. if the disk is full; report the original error
            if is_refusal(error) and all(_records_no_values(path.name) for path in self.directory.iterdir()):
                self.discard()
                return
            self._save_state(state, error=reason)

    def discard(self) -> bool:
        """Delete the run unless another process works on it; return whether it was deleted."""
        if self._lease is not None:
            self._empty()
            return True
        with self.claim(wait=False) as claimed:
            if claimed:
                self._empty()
        return claimed

    def _empty(self) -> None:
        for path in self.directory.iterdir():
            if not path.name.startswith(LOCK):
                remove(path)

    def _save_state(self, name: str, **more: str) -> None:
        """Write the state, and the seconds so far."""
        seconds, now = self.seconds(), time.monotonic()
        write_json(self.directory / STATE, {"run": self.id, "state": name, "seconds": seconds, **more})
        self._since = now

    def step(self, name: str, compute: Callable[[], V], *, worth_s: float = 0.0) -> V:
        """Compute a step of the run, or read its value if an interrupted process has finished it.

        Args:
            name: name of the step and of its file, which is deleted when the run finishes.
            compute: function that returns JSON values or `Tensors`.
            worth_s: smallest computing time, in seconds, for which the value is saved.
        """
        if (value := self.read_step(name)) is None:
            started = time.monotonic()
            value = compute()
            if time.monotonic() - started >= worth_s:
                self._save_step(name, value)
        return value

    def read_step(self, name: str) -> Any:
        """Return the value of a finished step, or None; warn if the step's file is unusable."""
        try:
            try:
                content = read_json(self._step(name, "json"))
            except FileNotFoundError:
                tensors, content = load_tensors(regular(self._step(name, "safetensors"), math.inf))
                content["value"] = Tensors(tensors, content["value"])
        except FileNotFoundError:
            return None
        except DamagedFileError as error:
            log.warning("%s: computed again", error)
            return None
        if (content.get("run"), content.get("step")) != (self.id, name):
            log.warning("step %s of %s belongs to another run or step: computed again", name, self.directory)
            return None
        return content["value"]

    def _save_step(self, name: str, value: Any) -> None:
        self.require_lease()
        about = {"run": self.id, "step": name}
        if isinstance(value, Tensors):
            save_tensors(self._step(name, "safetensors"), value.tensors, {**about, "value": dict(value.values)})
        else:
            write_json(self._step(name, "json"), {**about, "value": value})
        self._save_state("running")

    def _step(self, name: str, kind: str) -> Path:
        return self.directory / f"{_STEP}{name}.{kind}"

    def seconds(self) -> float:
        """Return the seconds that all processes have spent on the run so far.

        Earlier processes count as none if state.json or the number in it is missing or damaged.
        """
        earlier: Any = None
        with contextlib.suppress(DamagedFileError, OSError):
            earlier = read_json(self.directory / STATE).get("seconds")
        if type(earlier) not in (int, float) or not 0 <= earlier < _LONGEST_S:
            earlier = 0.0
        return round(earlier + time.monotonic() - self._since, 3)

    def save_curves(self, rows: Iterable[CurveRow]) -> None:
        """Write loss curves to curves.csv: one row per training size, seed and evaluation."""
        self.require_lease()
        write_curves(self.directory / CURVES, rows)


def whole_curves(directory: Path, result: Result | None) -> Path | None:
    """Return the path of a run's curves.csv, or None if there is none.

    Raises:
        DamagedFileError: it is not a regular file, or was changed after the run had finished.
    """
    try:
        path = regular(directory / CURVES)
    except FileNotFoundError:
        return None
    if result is not None and result.curves_checksum not in (None, file_checksum(path)):
        raise DamagedFileError(f"{path} was edited or damaged after the run had finished: its curves are left out")
    return path


def is_step(name: str) -> bool:
    """Return whether a file of this name holds the value of a finished step."""
    return name.startswith(_STEP) and name.endswith(_STEP_KINDS)


def _records_no_values(name: str) -> bool:
    """Return whether a file of this name holds no computed values."""
    return name in (CONFIG, STATE, "log.txt", "wandb") or name.startswith(LOCK)


def leftover(name: str) -> bool:
    """Return whether a finished run no longer needs a file of this name."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _LEFTOVERS)
