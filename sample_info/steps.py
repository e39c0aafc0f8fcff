"""Steps of a computation, each of which may be stored so that an interrupted run continues after it."""

from collections.abc import Callable
from typing import Protocol

from harness.run_directory import Tensors


class Steps(Protocol):
    """Returns the value of a function, or its value in an earlier, interrupted attempt."""

    def __call__(self, name: str, compute: Callable[[], Tensors], /, *, worth_s: float = 0.0) -> Tensors: ...


def computed(_: str, compute: Callable[[], Tensors], **__: object) -> Tensors:
    """Compute a step, and store nothing."""
    return compute()
