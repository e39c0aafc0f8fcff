"""Progress of a run whose trainings stop early."""

from collections.abc import Sequence


class TrainingProgress:
    """The finished share of a run's trainings, which never decreases.

    Early stopping makes the length of a training unknown: each is expected to end as soon as it may. Trainings count by
    their number of examples.

    Args:
        sizes: number of training examples of each training.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes, self._finished, self._shown = sizes, set[int](), 0.0

    def finish(self, i: int) -> None:
        """Record that training number `i` has ended."""
        self._finished.add(i)

    def share(self, i: int, epochs: float, left: float) -> float:
        """Return the share done, 0 to 1, when training number `i` has taken `epochs` and takes at least `left` more."""
        current = self._sizes[i] * epochs / max(1, epochs + left)
        done = sum(self._sizes[j] for j in self._finished) + current
        self._shown = max(self._shown, done / sum(self._sizes))
        return self._shown
