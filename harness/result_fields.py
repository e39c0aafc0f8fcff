"""Parts of result.json about trained networks (`harness.result`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict

from conf import Options

_ROUNDING = 1e-6  # rounding errors of float32
LARGEST_WHOLE = 2**53  # up to which floats, and so JSON, hold every whole number

# numbers that results may hold: neither true nor "1.5", and no impossible ones
Number = Annotated[float, Strict()]
Bits = Annotated[float, Strict(), Field(ge=-_ROUNDING)]
Share = Annotated[float, Strict(), Field(ge=-_ROUNDING, le=1 + _ROUNDING)]
Seconds = Annotated[float, Strict(), Field(ge=0)]
Whole = Annotated[int, Strict(), Field(ge=0, le=LARGEST_WHOLE)]
Bool = Annotated[bool, Strict()]


class Part:
    """A part of result.json, whose numbers are finite."""

    __pydantic_config__: ClassVar[dict[str, bool]] = {"allow_inf_nan": False}


@dataclass(frozen=True, kw_only=True)
class Endings(Part):
    """Ends of trainings, an entry per seed (`harness.loss_curves.endings`).

    Attributes:
        epochs: epochs trained.
        best_epoch: epoch of the lowest validation loss, whose weights are kept.
        untrained: whether the kept weights are the initial ones.
        plateau_epochs: epochs before the training loss fell below 0.99 of the label entropy; None if it never did.
        left_plateau: whether the training loss fell below that. A training whose loss did not was stopped before it had
            learnt anything: its loss does not show what the network can learn. Where it did and the network is
            untrained all the same, training only memorised its examples.
    """

    epochs: list[Whole]
    best_epoch: list[Whole] | None = None
    ended: list[Literal["patience", "max_epochs"]] | None = None
    untrained: list[Bool] | None = None
    plateau_epochs: list[Whole | None] | None = None
    left_plateau: list[Bool] | None = None


@dataclass(frozen=True, kw_only=True)
class Point(Endings):
    """A training size n of a prequential run: losses in bits per label, an entry per seed.

    Attributes:
        ce_next_bits: loss on the examples up to the next size; None for the last size, which has nothing left to
            predict. Under `train.protocol=published` it is the loss on the test part.
        ce_test_averaged_bits: test loss of the averaged weights in evaluation mode, for `train.protocol=published`,
            which scores the weights of the training sequence in training mode.
        ce_next_calibrated_bits: `ce_next_bits` with logits divided by `temperature` (`train.ensemble`).
    """

    n: Whole
    ce_next_bits: list[Bits] | None
    ce_test_bits: list[Bits]
    ce_next_calibrated_bits: list[Bits] | None = None
    ce_test_averaged_bits: list[Bits] | None = None
    temperature: list[Number] | None = None
    ce_train_bits: list[Bits] | None = None
    ce_validation_bits: list[Bits] | None = None
    test_accuracy: list[Share] | None = None


@dataclass(frozen=True, kw_only=True)
class Codelength(Part):
    """Codelengths of the online code, an entry per seed.

    Attributes:
        published: in the unit of the paper's Table 16 (`published_units`), whatever `train.protocol` is.
        calibrated_bits_per_sample: codelength with logits divided by a temperature.
    """

    bits_per_sample: list[Bits]
    total_bits: list[Bits]
    published: list[Bits]
    calibrated_bits_per_sample: list[Bits] | None = None


@dataclass(frozen=True, kw_only=True)
class Final(Part):
    """Losses of networks trained on everything, an entry per seed, in bits per label.

    They are losses with the weights of lowest validation loss; the training loss is on images without augmentation.
    `end_train_loss_bits` is the training loss when training ended.
    """

    loss_bits: list[Bits]
    accuracy: list[Share]
    train_loss_bits: list[Bits] | None = None
    validation_loss_bits: list[Bits] | None = None
    end_train_loss_bits: list[Bits] | None = None


@dataclass(frozen=True, kw_only=True)
class SharpDrops(Part):
    """The largest fall of each seed's validation loss within a window of epochs, and its first epoch or None."""

    window_epochs: Whole
    bits: list[Bits]
    epoch: list[Whole | None]


@dataclass(frozen=True, kw_only=True)
class Timing(Part):
    """Start of a run's last process, seconds of all its processes, and how seeds were trained together."""

    seconds: Seconds | None = None
    started: Seconds = 0.0
    stacking: Options | None = None


@dataclass(frozen=True, kw_only=True)
class CounterpartResult(Part):
    """Predictions of a sample along a training: for each seed, a value per step (`train.matched_sample_losses`).

    Attributes:
        z_scores: z-score of the sample's class information in each order, by "order 1", ...
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
class Trained(Part):
    """Parts that results of `train` and `mdl` share."""

    final: Final
    sharp_drop: SharpDrops | None = None
    timing: Timing = field(default_factory=Timing)

    @property
    def trainings(self) -> Sequence[Endings]:
        """Trainings by size, the largest last."""
        raise NotImplementedError

    @property
    def coding(self) -> Sequence[Endings]:
        """Trainings whose losses enter a codelength."""
        return ()


@dataclass(frozen=True, kw_only=True)
class Coded(Trained):
    """The fields of `python -m mdl`; the power law a · n^-b + c is per seed, None where none fits."""

    mdl: Codelength
    curve: list[Point]
    power_law: list[dict[str, Number] | None]

    @property
    def trainings(self) -> Sequence[Endings]:
        return self.curve

    @property
    def coding(self) -> Sequence[Endings]:
        return [point for point in self.curve if point.ce_next_bits is not None]


@dataclass(frozen=True, kw_only=True)
class TrainedOnce(Trained, Endings):
    """The fields of `python -m train`; the label entropy is the best that a constant predictor can do."""

    label_entropy_bits: Bits
    counterparts: dict[str, CounterpartResult] | None = None  # by name, the test images first

    @property
    def trainings(self) -> Sequence[Endings]:
        return [self]


def stuck(trainings: Sequence[tuple[Endings, int]]) -> str:
    """Return "3 of 5" if that many trainings never left the plateau; empty if all did, or if it is unknown.

    Args:
        trainings: the trainings of a size, and the position of a seed in them.
    """
    left = [training.left_plateau[s] for training, s in trainings if training.left_plateau is not None]
    return f"{left.count(False)} of {len(left)}" if False in left else ""


def untrained(trainings: Sequence[tuple[Endings, int]]) -> str:
    """Return "3 of 5" if that many trainings left the plateau and yet kept their initial weights; else empty.

    Args:
        trainings: the trainings of a size, and the position of a seed in them.
    """
    kept = [
        training.untrained[s] and (training.left_plateau is None or training.left_plateau[s])
        for training, s in trainings
        if training.untrained is not None
    ]
    return f"{kept.count(True)} of {len(kept)}" if True in kept else ""


def published_units(sizes: Sequence[int], ce_test_bits: Sequence[float]) -> float:
    """Return the unit of the paper's code and of its Table 16: Σ_i n_{i+1} CE_i / N over the sizes before the last.

    It serves comparison with the paper's tables, and is not a codelength: sizes are cumulative, and all losses are of
    one test set. With ten classes and ten sizes from 1,024 to N = 47,952, chance is 11.441. An untrained network's
    loss in bfloat16 gives 11.409, which is the paper's 11.41 ± 0.00.

    Args:
        sizes: cumulative training sizes n_1..n_m = N.
        ce_test_bits: CE_i of the model trained on n_i examples, on the test set, for i = 1..m-1.
    """
    return sum(n * bits for n, bits in zip(sizes[1:], ce_test_bits, strict=True)) / sizes[-1]
