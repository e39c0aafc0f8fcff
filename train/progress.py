"""How far a prequential run is."""

from collections.abc import Sequence

from train.order import epoch_steps
from train.settings import TrainSettings


class Work:
    """The share of a prequential run that is done, in optimiser steps.

    Early stopping makes the length of a training unknown: sizes to come are expected to take as many epochs
    as the longest so far.
    """

    def __init__(self, sizes: Sequence[int], settings: TrainSettings) -> None:
        self._steps = [epoch_steps(n, settings) for n in sizes]
        self._epochs: dict[int, int] = {}  # of finished sizes
        self._expected = 3 * settings.patience_steps / settings.min_epoch_steps

    def finish(self, i: int, epochs: int) -> None:
        """Size number `i` took this many epochs."""
        self._epochs[i] = epochs
        self._expected = max(self._epochs.values())

    def share(self, i: int, epoch: float) -> float:
        """Share done when size number `i` has trained for `epoch` epochs; between 0 and 1."""
        done = sum(self._steps[j] * epochs for j, epochs in self._epochs.items())
        rest = sum(steps for j, steps in enumerate(self._steps) if j not in self._epochs and j != i)
        here = self._steps[i] * max(self._expected, epoch + 1)
        return (done + self._steps[i] * epoch) / (done + here + rest * self._expected)
