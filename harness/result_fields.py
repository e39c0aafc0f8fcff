"""Parts of result.json about trained networks (`harness.result`)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict

from conf import Options
from conf.check import LARGEST_WHOLE

_ROUNDING = 1e-6  # rounding errors of float32

# types of numbers in results, which exclude true, "1.5" and impossible values
Number = Annotated[float, Strict()]
Bits = Annotated[float, Strict(), Field(ge=-_ROUNDING)]
Share = Annotated[float, Strict(), Field(ge=-_ROUNDING, le=1 + _ROUNDING)]
Seconds = Annotated[float, Strict(), Field(ge=0)]
Whole = Annotated[int, Strict(), Field(ge=0, le=LARGEST_WHOLE)]
Bool = Annotated[bool, Strict()]


class Part:
    """A part of result.json; all its numbers are finite."""

    __pydantic_config__: ClassVar[dict[str, bool]] = {"allow_inf_nan": False}


@dataclass(frozen=True, kw_only=True)
class Endings(Part):
    """Ends of trainings, by seed (`harness.loss_curves.endings`).

    Attributes:
        epochs: number of epochs trained.
        best_epoch: epoch of the lowest validation loss, whose weights are kept.
        untrained: whether the kept weights are the initial ones.
        plateau_epochs: number of epochs before the training loss fell below 0.99 of the label entropy; None if it never
            did.
        left_plateau: whether the training loss fell below 0.99 of the label entropy. If not, the training was stopped
            before it had learnt anything, and its loss does not show what the network can learn. If it did, but
            `untrained` is true, the training only memorised its examples.
    """

    epochs: list[Whole]
    best_epoch: list[Whole] | None = None
    ended: list[Literal["patience", "max_epochs"]] | None = None
    untrained: list[Bool] | None = None
    plateau_epochs: list[Whole | None] | None = None
    left_plateau: list[Bool] | None = None


@dataclass(frozen=True, kw_only=True)
class Final(Part):
    """Losses of networks trained on everything in bits per label, by seed.

    The losses are those of the weights with the lowest validation loss. The training loss is on images without
    augmentation. `end_train_loss_bits` is the training loss at the end of the training.
    """

    loss_bits: list[Bits]
    accuracy: list[Share]
    train_loss_bits: list[Bits] | None = None
    validation_loss_bits: list[Bits] | None = None
    end_train_loss_bits: list[Bits] | None = None


@dataclass(frozen=True, kw_only=True)
class SharpDrops(Part):
    """The largest fall of each seed's validation loss within a window of epochs, and its first epoch, if any."""

    window_epochs: Whole
    bits: list[Bits]
    epoch: list[Whole | None]


@dataclass(frozen=True, kw_only=True)
class Timing(Part):
    """Start time of a run's last process, total seconds of all its processes, and how seeds were stacked."""

    seconds: Seconds | None = None
    started: Seconds = 0.0
    stacking: Options | None = None
