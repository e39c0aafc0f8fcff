"""Parts that figures share: panels, three in a row, and loss curves."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.loss_curves import Array, LossCurve

Which = Literal["train_bits", "validation_bits"]


def panel_size(count: int) -> tuple[float, float]:
    """Return inches of a figure of `count` panels, with room for a legend above them."""
    return max(6.0, 4.7 * min(3, count)), 3.7 * math.ceil(count / 3) + 0.4


def panels(figure: Figure, count: int) -> list[Axes]:
    """Create `count` axes, three per row."""
    wide = min(3, count)
    return [figure.add_subplot(math.ceil(count / wide), wide, i + 1) for i in range(count)]


def mean_curve(curves: Sequence[LossCurve], which: Which = "validation_bits") -> tuple[Array, Array]:
    """Return epochs and mean of a loss [E], as long as all seeds train; empty without curves."""
    points = [_known(curve, which) for curve in curves]
    shortest = min((len(epochs) for epochs, _ in points), default=0)
    if not shortest:
        return np.zeros(0), np.zeros(0)
    return points[0][0][:shortest], np.mean([bits[:shortest] for _, bits in points], axis=0)


def loss_lines(ax: Axes, curves: Sequence[LossCurve], which: Which, **line: Any) -> None:
    """Draw each seed as a thin line and their mean with the properties `line`, those of matplotlib's `Line2D`."""
    for curve in curves[: len(curves) if len(curves) > 1 else 0]:
        ax.plot(*_known(curve, which), **{**line, "linewidth": 0.7, "alpha": 0.45, "label": None})
    ax.plot(*mean_curve(curves, which), **line)


def _known(curve: LossCurve, which: Which) -> tuple[Array, Array]:
    bits = getattr(curve, which)
    return curve.epochs[~np.isnan(bits)], bits[~np.isnan(bits)]
