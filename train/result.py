"""The result of `python -m train` in result.json."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.result import TrainedResult
from harness.result_fields import Bits, Endings, Number, Part, Share, Whole


@dataclass(frozen=True, kw_only=True)
class CounterpartResult(Part):
    """Scores on a sample during training, with a list over steps for each seed (`train.counterpart_losses`).

    Attributes:
        z_scores: z-score of the sample's class information in each order; keys are "order 1", ...
        step: optimiser steps taken.
        loss_bits: mean cross-entropy per label.
        accuracy: share of correct predictions.
        agreement: similarity of the mean predictions for a class on the sample and on the test images, 0 to 1.
    """

    z_scores: dict[str, Number]
    step: list[list[Whole]]
    loss_bits: list[list[Bits]]
    accuracy: list[list[Share]]
    agreement: list[list[Number]]


@dataclass(frozen=True, kw_only=True)
class TrainResult(TrainedResult, Endings):
    """A result of `python -m train`; the label entropy is the best that a constant predictor can do."""

    label_entropy_bits: Bits
    counterparts: dict[str, CounterpartResult] | None = None  # by name, the test images first

    @property
    def trainings(self) -> Sequence[Endings]:
        return [self]

    def by_seed(self) -> dict[str, Sequence[Any]]:
        return super().by_seed() | {"label_entropy_bits": [self.label_entropy_bits] * len(self.seeds)}
