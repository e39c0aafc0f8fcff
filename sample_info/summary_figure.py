"""What summaries look like: accuracy over the fraction of examples removed (Harutyunyan et al. 2021, figure 2(c))."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from train.compare import Spread
from train.style import STYLE

ORDER_COLOURS = {"bottom": "#56B4E9", "bottom_iterative": "#0072B2", "top": "#D55E00", "random": "#4d4d4d"}
_MARKERS = {"bottom": "o", "bottom_iterative": "s", "top": "^", "random": "x"}


def draw_summaries(removed: Sequence[float], accuracy: Mapping[str, Sequence[Spread]], title: str, path: Path) -> Path:
    """A line per order, and a band of a standard deviation to either side.

    Args:
        removed: fractions.
        accuracy: by order, for every fraction.
        title: of the figure.
        path: where it goes.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 4.4), layout="constrained")
        ax = figure.add_subplot()
        percent = [100 * fraction for fraction in removed]
        for order, spreads in accuracy.items():
            mean, std = ([100 * value for value in values] for values in _means_and_stds(spreads))
            label, colour = order.replace("_", " "), ORDER_COLOURS[order]
            ax.plot(percent, mean, label=label, color=colour, marker=_MARKERS[order], markersize=4)
            low, high = ([m + sign * s for m, s in zip(mean, std, strict=True)] for sign in (-1, 1))
            ax.fill_between(percent, low, high, color=colour, alpha=0.15, linewidth=0)
        ax.set(title=title, xlabel="training examples removed (%)", ylabel="test accuracy (%)")
        ax.legend(loc="lower left")
        figure.savefig(path, dpi=120)
    return path


def _means_and_stds(spreads: Sequence[Spread]) -> tuple[list[float], list[float]]:
    return [spread.mean for spread in spreads], [spread.std or 0.0 for spread in spreads]
