"""Loss curves: recording, files, the ends of trainings, sharp falls, and crossings of two runs."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from erasure.store.atomic_files import write_text
from erasure.store.regular_files import read_regular
from harness.result_fields import SharpDrops

if TYPE_CHECKING:
    from torch import Tensor

DROP_WINDOW_EPOCHS = 5  # a fall of the loss within this many epochs is called sharp

_LARGEST_BITS = 1e100
_PLATEAU_SHARE = 0.99  # of the label entropy, from which the loss on the plateau differs by a few thousandths

Array = NDArray[np.float64]


class CurveRow(NamedTuple):
    """A line of curves.csv: losses in bits per label of one seed at one evaluation; epoch 0 has no training loss."""

    n: int
    seed: int
    epoch: int
    train_loss_bits: float | None
    validation_loss_bits: float


@dataclass
class MemberCurve:
    """One member's losses in bits at each evaluation.

    Epoch 0 is the initial network, which has a validation loss but no training loss.

    Attributes:
        label_entropy_bits: entropy of the member's training labels, the lowest loss of a constant predictor.
        epoch: number of finished epochs at each evaluation, ascending; `epochs` is the last one.
        ended: why the training ended; None while it continues.
    """

    seed: int
    label_entropy_bits: float
    epoch: list[int] = field(default_factory=list)
    train_loss_bits: list[float | None] = field(default_factory=list)
    validation_loss_bits: list[float] = field(default_factory=list)
    ended: Literal["patience", "max_epochs"] | None = None

    def record(self, epoch: int, train_loss_bits: float | None, validation_loss_bits: float) -> bool:
        """Record an evaluation; return whether its validation loss is the lowest."""
        best = validation_loss_bits < self.best_validation_bits
        self.epoch.append(epoch)
        self.train_loss_bits.append(train_loss_bits)
        self.validation_loss_bits.append(validation_loss_bits)
        return best

    @property
    def epochs(self) -> int:
        """Epochs trained."""
        return self.epoch[-1] if self.epoch else 0

    @property
    def best_validation_bits(self) -> float:
        return min(self.validation_loss_bits, default=math.inf)

    @property
    def best_epoch(self) -> int:
        """The first epoch with the lowest validation loss."""
        return self.epoch[self.validation_loss_bits.index(self.best_validation_bits)]

    @property
    def plateau_epochs(self) -> int | None:
        """The number of epochs before the training loss fell clearly below the label entropy; None if it never did.

        The validation loss cannot be used instead: on a plateau it falls by chance, and it need not fall when a network
        memorises its training examples.
        """
        enough = _PLATEAU_SHARE * self.label_entropy_bits
        evaluations = zip(self.epoch, self.train_loss_bits[1:], strict=False)
        return next((before for before, bits in evaluations if bits is not None and bits < enough), None)

    def rows(self, n: int) -> list[CurveRow]:
        """Return rows of curves.csv for a training set of n examples."""
        losses = zip(self.epoch, self.train_loss_bits, self.validation_loss_bits, strict=True)
        return [CurveRow(n, self.seed, epoch, train, validation) for epoch, train, validation in losses]


@dataclass(frozen=True)
class LossCurve:
    """One seed's losses in bits per label, each [E]; epoch 0 has no training loss, which is NaN."""

    epochs: Array
    train_bits: Array
    validation_bits: Array


def sharp_drop(
    epochs: Sequence[float] | Array, bits: Sequence[float] | Array, window: int = DROP_WINDOW_EPOCHS
) -> tuple[float, int | None]:
    """Return the largest fall of `bits` [E] between evaluations at most `window` epochs apart, and its first epoch.

    Successive evaluations are compared even if they are further apart. Among equal falls, the shortest and then the
    earliest counts. The result is 0 and None for a loss that never falls.
    """
    x, y = np.asarray(epochs, dtype=np.float64), np.asarray(bits, dtype=np.float64)
    best: tuple[float, int | None] = (0.0, None)
    for lag in range(1, len(x)):
        close = (x[lag:] - x[:-lag] <= window) | (lag == 1)
        if not close.any():
            break
        falls = np.where(close, y[:-lag] - y[lag:], -np.inf)
        i = int(falls.argmax())
        if falls[i] > best[0]:
            best = float(falls[i]), int(x[i])
    return best


def sharp_drops(rows: Iterable[CurveRow]) -> SharpDrops:
    """Return `sharp_drop` of every seed's validation losses at one training size."""
    by_seed: dict[int, list[CurveRow]] = {}
    for row in rows:
        by_seed.setdefault(row.seed, []).append(row)
    drops = [
        sharp_drop([row.epoch for row in of_seed], [row.validation_loss_bits for row in of_seed])
        for of_seed in by_seed.values()
    ]
    falls, began = [bits for bits, _ in drops], [epoch for _, epoch in drops]
    return SharpDrops(window_epochs=DROP_WINDOW_EPOCHS, bits=falls, epoch=began)


def endings(curves: Sequence[MemberCurve]) -> dict[str, Any]:
    """Return the fields of `Endings`, with one entry per member."""
    plateaus = [curve.plateau_epochs for curve in curves]
    return {
        "epochs": [curve.epochs for curve in curves],
        "best_epoch": [curve.best_epoch for curve in curves],
        "ended": [curve.ended for curve in curves],
        "untrained": [curve.best_epoch == 0 for curve in curves],
        "plateau_epochs": plateaus,
        "left_plateau": [epochs is not None for epochs in plateaus],
    }


def crossing(x: Sequence[float], erased: Array, control: Array) -> int | None:
    """Return the `x` from which `erased` [m] stays below `control` [m]; None if it does not end below."""
    above = np.flatnonzero(~(np.asarray(erased) < np.asarray(control)))
    first = int(above[-1]) + 1 if len(above) else 0
    return int(x[first]) if first < len(x) else None


def crossing_epoch(erased: Sequence[LossCurve], control: Sequence[LossCurve]) -> int | None:
    """Return the epoch from which the erased runs' mean validation loss stays below the controls'.

    The loss at an epoch is the best so far, as early stopping would return it; a stopped seed keeps its best loss.
    Seeds and runs of different lengths can thus be compared up to the longest. A control that merely overfits is not
    crossed.
    """
    grid = np.unique(np.concatenate([curve.epochs for curve in (*erased, *control)]))
    return crossing(grid.tolist(), _mean_best(erased, grid), _mean_best(control, grid))


def _mean_best(curves: Sequence[LossCurve], grid: Array) -> Array:
    """Return the mean over seeds of the best validation loss up to each epoch of `grid`."""
    best = []
    for curve in curves:
        last = np.searchsorted(curve.epochs, grid, side="right") - 1
        best.append(np.minimum.accumulate(curve.validation_bits)[np.maximum(last, 0)])
    return np.mean(best, axis=0)


def write_curves(path: Path, rows: Iterable[CurveRow]) -> None:
    """Write curves.csv with seven digits: one row per training size, seed and evaluation, the largest size last."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CurveRow._fields)
    writer.writerows((*row[:3], *("" if bits is None else f"{bits:.7g}" for bits in row[3:])) for row in rows)
    write_text(path, text.getvalue())


def read_loss_curves(path: Path) -> dict[int, LossCurve]:
    """Return the loss curves of the largest training size in a run's curves.csv, by seed.

    Raises:
        ValueError: the file was not written by `write_curves`.
    """
    rows = read_regular(path).splitlines()[1:]
    try:
        largest = rows[-1].partition(",")[0] + ","
        rows = [row for row in rows if row.startswith(largest)]
        last = np.array([[float(cell or "nan") for cell in row.split(",")] for row in rows])
        curves = {int(seed): LossCurve(*last[last[:, 1] == seed, 2:5].T) for seed in np.unique(last[:, 1])}
    except (ValueError, IndexError, TypeError, OverflowError) as error:
        raise ValueError(f"{path} is not a table of losses: {str(error)[:160]}") from error
    for curve in curves.values():
        if not (np.abs(curve.validation_bits) < _LARGEST_BITS).all():
            raise ValueError(f"{path} is not a table of losses: a validation loss is missing")
        if not ((curve.epochs >= 0).all() and (np.diff(curve.epochs) > 0).all() and curve.epochs[-1] < np.inf):
            raise ValueError(f"{path} is not a table of losses: epochs are not in order")
    return curves


def label_entropy_bits(labels: "Tensor") -> float:
    """Return the entropy of the labels' shares: the lowest loss of a constant predictor on them."""
    shares = labels.bincount().double() / len(labels)
    return float(-(shares * shares.log2()).nan_to_num().sum())
