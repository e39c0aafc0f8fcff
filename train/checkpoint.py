"""Checkpoints of unfinished trainings, saved at intervals and on interruption."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from erasure.store.atomic_files import remove
from erasure.store.checked_files import DamagedFileError, load_tensors, save_tensors
from harness.interruption import interruptible

log = logging.getLogger(__name__)

_KEPT = 2  # if the newest checkpoint is damaged, the one before it is used
_MAX_SHARE = 0.02  # largest share of the time spent on saving

State = tuple[dict[str, Tensor], dict[str, Any]]


class Resumable(Protocol):
    """A computation that can be saved before it is finished.

    Attributes:
        before_step: function that the computation calls before every step; set by `Checkpoints.continued`.
    """

    before_step: Callable[[], None]

    @property
    def finished(self) -> bool: ...

    def state(self) -> State: ...

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> bool:
        """Continue from this state; return False if it is of other members or another version."""
        ...


class Checkpoints:
    """The checkpoints `checkpoint-<name>.<number>.safetensors` in a directory, with JSON values in their headers.

    Args:
        directory: the run's directory.
        every_s: seconds between saves; longer if saving is slow.
        before_save: called before every save; raises if this process may no longer write.
    """

    def __init__(self, directory: Path, every_s: float, before_save: Callable[[], None] = lambda: None) -> None:
        self.directory = directory
        self._before_save = before_save
        self._every_s = every_s
        self._started = time.monotonic()
        self._saved_at: dict[str, float] = {}
        self._took_s: dict[str, float] = {}

    @contextlib.contextmanager
    def continued(self, name: str, computation: Resumable, *, keep: bool = False) -> Iterator[None]:
        """Continue a computation from its newest checkpoint, and save it at intervals while the block runs it.

        Signals wait for the next save.

        Args:
            name: name of its checkpoints.
            computation: a computation that has not begun.
            keep: whether to save it also at its end, because other computations follow.
        """
        with interruptible() as interruption:
            state = self.load(name)
            if state is not None and computation.restore(*state):
                log.info("continuing at %s", computation)
            elif state is not None:
                log.warning("the checkpoint %s is of other seeds, stacks or version: this training starts again", name)

            def save_when_due() -> None:
                interrupted = interruption.pending is not None
                if interrupted or self.due(name):
                    self.save(name, computation.state())
                if interrupted:
                    interruption.deliver()

            computation.before_step = save_when_due
            unfinished = not computation.finished
            yield
            if keep and unfinished:
                self.save(name, computation.state())

    def due(self, name: str) -> bool:
        """Return whether it is time to save the training of this name."""
        since = time.monotonic() - self._saved_at.get(name, self._started)
        return since >= max(self._every_s, self._took_s.get(name, 0.0) / _MAX_SHARE)

    def save(self, name: str, state: State) -> None:
        """Save a training's state as the newest checkpoint of this name.

        Raises:
            DiskFullError: no space is left; older checkpoints are unchanged.
        """
        self._before_save()
        started = time.monotonic()
        older = self._numbered(name)
        number = max(older, default=0) + 1
        tensors, values = state
        path = self.directory / f"checkpoint-{name}.{number}.safetensors"
        save_tensors(path, tensors, {**values, "run": self.directory.name})
        for old in sorted(older)[: 1 - _KEPT]:
            older[old].unlink()
        self._saved_at[name] = time.monotonic()
        self._took_s[name] = self._saved_at[name] - started

    def load(self, name: str) -> tuple[Mapping[str, Tensor], Mapping[str, Any]] | None:
        """Load the newest valid state of this name and run, or None; delete unusable newer ones with a warning."""
        numbered = self._numbered(name)
        for number in sorted(numbered, reverse=True):
            try:
                tensors, values = load_tensors(numbered[number])
                if values.pop("run", None) == self.directory.name:
                    return tensors, values
                log.warning("%s is another run's: going back to the one before", numbered[number])
            except DamagedFileError as error:
                log.warning("damaged checkpoint, going back to the one before: %s", error)
            numbered[number].unlink()
        return None

    def delete(self, prefix: str) -> None:
        """Delete the checkpoints whose names start with `prefix`, and the remains of interrupted writes."""
        for path in self.directory.glob(f"*checkpoint-{prefix}*"):
            remove(path)

    def _numbered(self, name: str) -> dict[int, Path]:
        paths = self.directory.glob(f"checkpoint-{name}.*.safetensors")
        return {int(path.name.split(".")[1]): path for path in paths}
