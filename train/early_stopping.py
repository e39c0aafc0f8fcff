"""The rule that stops a member, and a warning if validation images are unlike training images."""

import logging
import math
from collections.abc import Mapping
from typing import Literal

from erasure.certificate import Certificate
from harness.loss_curves import MemberCurve
from train.settings import TrainSettings

log = logging.getLogger(__name__)

_FURTHER = 1.5  # ratio of the edits of validation and training images above which they are unlike


def warn_of_unlike_validation(certificates: Mapping[str, Certificate], instead: str) -> None:
    """Warn if erasure moved validation images much further than training images."""
    train, validation = (certificates[split].edit_size for split in ("train", "validation"))
    if validation > _FURTHER * train:
        log.warning(
            "validation images were moved %.1f times as far as training images (%.0f and %.0f %% of the variance): "
            "their loss may rise from the start, and stop trainings that learn; %s",
            validation / train, 100 * validation, 100 * train, instead,
        )  # fmt: skip


def ending(curve: MemberCurve, settings: TrainSettings, epoch_steps: int) -> Literal["patience", "max_epochs"] | None:
    """Return why a member ends after its latest evaluation, or None if it continues.

    A member ends once its validation loss has not improved for `patience_steps` optimizer steps (on the plateau, at
    least `plateau_steps`), or at `max_epochs`.

    Args:
        curve: the member's losses.
        settings: how long to wait, on the plateau and after it.
        epoch_steps: optimizer steps per epoch.
    """
    if _steps_left(curve, settings, epoch_steps) <= 0:
        return "patience"
    return "max_epochs" if curve.epochs >= settings.max_epochs else None


def epochs_left(curve: MemberCurve, settings: TrainSettings, epoch_steps: int) -> int:
    """Return the number of epochs left if the member does not improve again; on the plateau, if it leaves it now."""
    steps = min(_steps_left(curve, settings, epoch_steps), settings.patience_steps)
    return min(-(-steps // epoch_steps), settings.max_epochs - curve.epochs)


def _steps_left(curve: MemberCurve, settings: TrainSettings, epoch_steps: int) -> int:
    """Return the steps left for the validation loss to improve; the count restarts when the plateau is left."""
    left = curve.plateau_epochs
    since = max(_improved_epoch(curve, settings.min_improvement_bits), left or 0)
    patience_steps = max(settings.patience_steps, settings.plateau_steps if left is None else 0)
    return patience_steps - (curve.epochs - since) * epoch_steps


def _improved_epoch(curve: MemberCurve, worth_bits: float) -> int:
    """Return the epoch of the latest improvement by more than `worth_bits` on the previous one."""
    improved_epoch, to_beat_bits = 0, math.inf
    for epoch, bits in zip(curve.epoch, curve.validation_loss_bits, strict=True):
        if bits < to_beat_bits - worth_bits:
            improved_epoch, to_beat_bits = epoch, bits
    return improved_epoch
