"""Early stopping of each member, and a warning where validation images are unlike those that train."""

import logging
import math
from collections.abc import Mapping

from erasure.certificate import Certificate
from harness.loss_curves import MemberCurve
from train.settings import TrainSettings

log = logging.getLogger(__name__)

_FURTHER = 1.5  # times the edit of training images, from where on validation images are unlike them


def warn_of_unlike_validation(certificates: Mapping[str, Certificate], instead: str) -> None:
    """Say so where the images that stop trainings were moved much further than those that networks learn from."""
    train, validation = (certificates[split].edit_size for split in ("train", "validation"))
    if validation > _FURTHER * train:
        log.warning(
            "validation images were moved %.1f times as far as training images (%.0f and %.0f %% of the variance): "
            "their loss may rise from the start, and stop trainings that learn; %s",
            validation / train, 100 * validation, 100 * train, instead,
        )  # fmt: skip


class EarlyStopping:
    """The rule that ends a member's training once its validation loss has not improved for so many optimiser steps.

    Its state must be a pure function of the evaluations (epoch, training loss, validation loss) and the settings,
    because `Training.restore` rebuilds it by replaying the evaluations of a checkpoint through `update`.

    Args:
        seed: the member's.
        settings: how long to wait, on the plateau and after it.
        epoch_steps: optimiser steps per epoch.
        label_entropy_bits: of the member's training labels.
    """

    def __init__(self, seed: int, settings: TrainSettings, *, epoch_steps: int, label_entropy_bits: float) -> None:
        self.curve = MemberCurve(seed, label_entropy_bits)
        self._settings, self._epoch_steps = settings, epoch_steps
        self._improved_epoch = 0
        self._to_beat_bits = math.inf  # only an improvement worth waiting for moves it

    def update(self, epoch: int, train_loss_bits: float | None, validation_loss_bits: float) -> bool:
        """Record an evaluation and return whether these are the member's best weights so far."""
        curve = self.curve
        best = validation_loss_bits < curve.best_validation_bits
        curve.epoch.append(epoch)
        curve.train_loss_bits.append(train_loss_bits)
        curve.validation_loss_bits.append(validation_loss_bits)
        if validation_loss_bits < self._to_beat_bits - self._settings.min_improvement_bits:
            self._to_beat_bits, self._improved_epoch = validation_loss_bits, epoch
        if self._steps_left <= 0:
            curve.ended = "patience"
        elif epoch >= self._settings.max_epochs:
            curve.ended = "max_epochs"
        return best

    @property
    def epochs_left(self) -> int:
        """The epochs left if it improves no more, or leaves the plateau now."""
        steps = min(self._steps_left, self._settings.patience_steps)
        return min(-(-steps // self._epoch_steps), self._settings.max_epochs - self.curve.epochs)

    @property
    def _steps_left(self) -> int:
        """The optimiser steps left for the validation loss; counted anew where the training loss leaves the plateau."""
        settings, left = self._settings, self.curve.plateau_epochs
        since = max(self._improved_epoch, left or 0)
        patience_steps = max(settings.patience_steps, settings.plateau_steps if left is None else 0)
        return patience_steps - (self.curve.epochs - since) * self._epoch_steps
