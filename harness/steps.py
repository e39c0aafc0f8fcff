"""Steps of a computation, each of which may be stored so that an interrupted run continues after it."""

from collections.abc import Callable
from typing import Protocol, TypeVar

V = TypeVar("V")


class Steps(Protocol):
    """Returns the value of a function, or its value in an earlier, interrupted attempt; see `Run.step`."""

    def __call__(self, name: str, compute: Callable[[], V], /, *, worth_s: float = 0.0) -> V: ...


def computed(_: str, compute: Callable[[], V], /, **__: object) -> V:
    """Compute a step, and store nothing."""
    return compute()
