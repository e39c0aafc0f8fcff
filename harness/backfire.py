"""Backfiring: an erased run that ends below its control. By how much, from where on, and how suddenly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from harness.compare import Difference
from harness.loss_curves import LossCurve, crossing, crossing_epoch
from harness.result import Coded, Point, TrainedResult

Curves = Mapping[int, LossCurve]


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


def backfire(
    erased: TrainedResult,
    control: TrainedResult,
    gap: Difference,
    curves: Curves | None = None,
    control_curves: Curves | None = None,
) -> Backfire:
    """Compare two finished runs of one verb; loss curves of the whole dataset by seed, where they are at hand.

    Raises:
        ValueError: the runs were trained on different sizes.
    """
    return Backfire(
        gap=gap,
        size=crossing_size(*(run.curve if isinstance(run, Coded) else () for run in (erased, control))),
        epoch=crossing_epoch([*curves.values()], [*control_curves.values()]) if curves and control_curves else None,
    )


def crossing_size(erased: Sequence[Point], control: Sequence[Point]) -> int | None:
    """The training size from which the mean test loss of `erased` stays below that of `control`.

    Args:
        erased: result.json's "curve", and so `control`; of the same sizes.
    """
    sizes = [point.n for point in erased]
    if sizes != (others := [point.n for point in control]):
        raise ValueError(f"trained on {sizes} examples, the control on {others}")
    losses = [np.array([mean(point.ce_test_bits) for point in curve]) for curve in (erased, control)]
    return crossing(sizes, *losses) if len(sizes) > 1 else None
