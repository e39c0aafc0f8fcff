"""A member's loss curve, and the decision to stop training it."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from train.settings import TrainSettings


@dataclass
class MemberCurve:
    """One member's losses in bits at each evaluation, and when its best weights were seen.

    Epoch 0 is the network as initialised; it has a validation loss and no training loss.
    """

    seed: int
    epoch: list[int] = field(default_factory=list)
    train_loss_bits: list[float | None] = field(default_factory=list)
    validation_loss_bits: list[float] = field(default_factory=list)
    best_epoch: int = 0
    best_validation_bits: float = math.inf

    @property
    def epochs(self) -> int:
        """Epochs trained."""
        return self.epoch[-1] if self.epoch else 0

    def rows(self, n: int) -> list[list[Any]]:
        """Rows of curves.csv for a training set of n examples."""
        losses = zip(self.epoch, self.train_loss_bits, self.validation_loss_bits, strict=True)
        return [[n, self.seed, epoch, train, validation] for epoch, train, validation in losses]


class EarlyStopping:
    """Ends a member's training once its validation loss has not improved for `patience` evaluations."""

    def __init__(self, seed: int, settings: TrainSettings) -> None:
        self.curve = MemberCurve(seed)
        self.stopped = False
        self._settings = settings
        self._waited = 0
        self._to_beat_bits = math.inf  # only an improvement worth waiting for moves it

    def update(self, epoch: int, train_loss_bits: float | None, validation_loss_bits: float) -> bool:
        """Note an evaluation; returns whether these are the member's best weights so far."""
        curve = self.curve
        curve.epoch.append(epoch)
        curve.train_loss_bits.append(train_loss_bits)
        curve.validation_loss_bits.append(validation_loss_bits)
        if validation_loss_bits < self._to_beat_bits - self._settings.min_improvement_bits:
            self._to_beat_bits, self._waited = validation_loss_bits, 0
        else:
            self._waited += 1
        self.stopped = self._waited >= self._settings.patience
        best = validation_loss_bits < curve.best_validation_bits
        if best:
            curve.best_epoch, curve.best_validation_bits = epoch, validation_loss_bits
        return best

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, JSON-like; an infinite loss, before the first evaluation, as None."""
        numbers = {"stopped": self.stopped, "waited": self._waited, "to_beat_bits": _finite(self._to_beat_bits)}
        best = _finite(self.curve.best_validation_bits)
        return {**numbers, "curve": asdict(self.curve) | {"best_validation_bits": best}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where another member stood."""
        self.stopped, self._waited = state["stopped"], state["waited"]
        self._to_beat_bits = _infinite(state["to_beat_bits"])
        curve = state["curve"]
        self.curve = MemberCurve(**{**curve, "best_validation_bits": _infinite(curve["best_validation_bits"])})


def _finite(bits: float) -> float | None:
    return bits if math.isfinite(bits) else None


def _infinite(bits: float | None) -> float:
    return math.inf if bits is None else bits
