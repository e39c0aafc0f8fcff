"""Progress of a run whose trainings stop early."""

from collections.abc import Sequence

from train.epoch_draws import epoch_steps
from train.settings import TrainSettings

_EPOCHS = 100  # of CIFAR-10's 48,976 images networks trained 87 to 600; of a fifth of them 75 to 380


class TrainingProgress:
    """The share of a run's trainings that is done, in optimiser steps; it never falls.

    Early stopping makes the length of a training unknown. The first is expected to take 100 epochs, where that is from
    two to ten times the patience, others as many epochs as the longest so far, and none less than its patience.
    """

    def __init__(self, sizes: Sequence[int], settings: TrainSettings) -> None:
        self._steps = [epoch_steps(n, settings) for n in sizes]
        self._epochs: dict[int, int] = {}  # of finished sizes
        self._longest, self._patience_steps = settings.max_epochs, settings.patience_steps
        self._shown = 0.0

    def finish(self, i: int, epochs: int) -> None:
        """Note how many epochs size `i` took."""
        self._epochs[i] = epochs

    def share(self, i: int, epoch: float, left: float) -> float:
        """Return the share done, 0 to 1, when size number `i` has trained for `epoch` epochs and needs `left` more."""
        patience = self._patience_steps / self._steps[i]
        usual = max(self._epochs.values(), default=max(2 * patience, min(_EPOCHS, 10 * patience), epoch + left))
        done = sum(self._steps[j] * epochs for j, epochs in self._epochs.items())
        current = self._steps[i] * min(self._longest, max(usual, epoch + left))
        others = [steps for j, steps in enumerate(self._steps) if j not in self._epochs and j != i]
        rest = sum(min(steps * self._longest, max(steps * usual, self._patience_steps)) for steps in others)
        self._shown = max(self._shown, (done + self._steps[i] * epoch) / (done + current + rest))
        return self._shown
