"""What summaries look like: accuracy over the fraction of examples removed (Harutyunyan et al. 2021, figure 2(c))."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.compare import Spread
from harness.style import STYLE, shared_legend

ORDER_COLOURS = {"bottom": "#56B4E9", "bottom_iterative": "#0072B2", "top": "#D55E00", "random": "#4d4d4d"}
_MARKERS = {"bottom": "o", "bottom_iterative": "s", "top": "^", "random": "x"}


@dataclass(frozen=True)
class Panel:
    """One run's summaries.

    Attributes:
        title: of the panel.
        network: whose accuracy it is, e.g. "of the linearised network".
        removed: fractions.
        accuracy: by order, for every fraction.
    """

    title: str
    network: str
    removed: Sequence[float]
    accuracy: Mapping[str, Sequence[Spread]]


def draw_summaries(panels: Sequence[Panel], path: Path) -> Path:
    """The figure of `summaries_figure` on disk."""
    with mpl.rc_context(STYLE):
        summaries_figure(panels).savefig(path, dpi=110)
    return path


def summaries_figure(panels: Sequence[Panel]) -> Figure:
    """A panel per run, in it a line per order and a band of a standard deviation to either side."""
    wide = min(3, len(panels))
    tall = -(-len(panels) // wide)
    figure = Figure(figsize=(4.2 * wide + 1.2, 3.4 * tall + 0.8), layout="constrained")
    axes = figure.subplots(tall, wide, squeeze=False).flatten().tolist()
    for ax, panel in zip(axes, panels, strict=False):
        _draw(ax, panel)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    shared_legend(figure, axes[: len(panels)])
    return figure


def _draw(ax: Axes, panel: Panel) -> None:
    percent = [100 * fraction for fraction in panel.removed]
    for order, spreads in panel.accuracy.items():
        mean, std = ([100 * value for value in values] for values in _means_and_stds(spreads))
        colour = ORDER_COLOURS[order]
        ax.plot(percent, mean, label=order.replace("_", " "), color=colour, marker=_MARKERS[order], markersize=4)
        low, high = ([m + sign * s for m, s in zip(mean, std, strict=True)] for sign in (-1, 1))
        ax.fill_between(percent, low, high, color=colour, alpha=0.15, linewidth=0)
    ax.set_ylim(top=min(ax.get_ylim()[1], 101))  # a band may leave what accuracies can be
    ax.set_title(panel.title, fontsize=10, wrap=True)
    ax.set_xlabel("training examples removed (%)")
    ax.set_ylabel(f"test accuracy (%)\n{panel.network}", fontsize=10)


def _means_and_stds(spreads: Sequence[Spread]) -> tuple[list[float], list[float]]:
    return [spread.mean for spread in spreads], [spread.std or 0.0 for spread in spreads]
