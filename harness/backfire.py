"""Backfiring: an erased run that ends below its control. By how much, from where on, and how suddenly."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from harness.compare import Difference
from harness.loss_curves import crossing
from harness.trained import Point


@dataclass(frozen=True)
class Backfire:
    """An erased run beside the control that shares its dataset, model, training, sizes and seeds.

    Attributes:
        gap: final loss on the test split minus the control's, in bits per label, as its table has it.
        size: training examples from which the mean test loss stays below the control's; None if it ends above,
            or if only one size was trained.
        epoch: of the training on the whole dataset, from which the mean validation loss stays below the
            control's (`crossing_epoch`); None if it ends above, or without curves.
    """

    gap: Difference
    size: int | None
    epoch: int | None

    @property
    def backfires(self) -> bool:
        return self.gap.below


def crossing_size(erased: Sequence[Point], control: Sequence[Point]) -> int | None:
    """The training size from which the mean test loss of `erased` stays below that of `control`.

    Args:
        erased: a run's learning curve, and so `control`; of the same sizes.

    Raises:
        ValueError: they were trained on different sizes.
    """
    sizes = [point.n for point in erased]
    if sizes != (others := [point.n for point in control]):
        raise ValueError(f"trained on {sizes} examples, the control on {others}")
    losses = [np.array([mean(point.ce_test_bits) for point in curve]) for curve in (erased, control)]
    return crossing(sizes, *losses) if len(sizes) > 1 else None
