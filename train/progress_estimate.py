"""Progress of a run whose trainings stop early."""

from collections.abc import Sequence

from train.randomness import epoch_steps
from train.settings import TrainSettings

_EPOCHS = 100  # networks trained 87 to 600 epochs on CIFAR-10's 48,976 images, and 75 to 380 on a fifth of them


class TrainingProgress:
    """The finished share of a run's optimiser steps, which never decreases.

    Early stopping makes the length of a training unknown. The first training is expected to take 100 epochs, but at
    least twice and at most ten times the patience. Later trainings are expected to take as many epochs as the longest
    so far, but at least their patience.

    Args:
        sizes: number of training examples of each training.
        settings: settings of all trainings.
    """

    def __init__(self, sizes: Sequence[int], settings: TrainSettings) -> None:
        if settings.protocol == "published":  # patience in epochs, and no repetition of small training sets
            self._steps = list(sizes)  # of one image
            self._patience = [float(settings.published.patience_epochs)] * len(sizes)
        else:
            self._steps = [epoch_steps(n, settings) for n in sizes]
            self._patience = [settings.patience_steps / steps for steps in self._steps]
        self._epochs: dict[int, int] = {}  # of finished trainings
        self._longest, self._shown = settings.max_epochs, 0.0

    def finish(self, i: int, epochs: int) -> None:
        """Record the number of epochs that training number `i` took."""
        self._epochs[i] = epochs

    def share(self, i: int, epoch: float, left: float) -> float:
        """Return the share done, 0 to 1, when training number `i` is at `epoch` and needs `left` more epochs."""
        patience = self._patience[i]
        usual = max(self._epochs.values(), default=max(2 * patience, min(_EPOCHS, 10 * patience), epoch + left))
        done = sum(self._steps[j] * epochs for j, epochs in self._epochs.items())
        current = self._steps[i] * min(self._longest, max(usual, epoch + left))
        others = [j for j in range(len(self._steps)) if j not in self._epochs and j != i]
        rest = sum(self._steps[j] * min(self._longest, max(usual, self._patience[j])) for j in others)
        self._shown = max(self._shown, (done + self._steps[i] * epoch) / (done + current + rest))
        return self._shown
