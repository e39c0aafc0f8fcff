"""Steps of a computation, each of which may be stored so that an interrupted run continues after it."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from harness.result import as_json, parsed
from harness.run_directory import Run

V = TypeVar("V")


class Steps(Protocol):
    """Returns the value of a function, or its value in an earlier, interrupted attempt; see `Run.step`."""

    def __call__(self, name: str, compute: Callable[[], V], /, *, worth_s: float = 0.0) -> V: ...


def computed(_: str, compute: Callable[[], V], /, **__: object) -> V:
    """Compute a step, and store nothing."""
    return compute()


def json_steps(run: Run, kind: type[V]) -> Callable[[str, Callable[[], V]], V]:
    """Return steps of a run whose values are dataclasses of this kind, stored as JSON."""
    return lambda name, compute: parsed(kind, run.step(name, lambda: as_json(compute())))
