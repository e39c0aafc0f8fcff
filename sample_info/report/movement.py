"""Information under erasure: how each example's score moves from one eraser to another."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from harness.compare import Grid
from harness.style import STYLE, colour
from sample_info.references.comparison import spearman
from sample_info.report.run_scores import ScoresOf


@dataclass(frozen=True)
class Movement:
    """The same examples' F-SI under two erasers.

    Attributes:
        row: dataset and model.
        before, after: the erasers.
        first, second: scores in nats, averaged over seeds, [n] each.
    """

    row: str
    before: str
    after: str
    first: Tensor
    second: Tensor

    @cached_property
    def spearman(self) -> float | None:
        """Rank correlation."""
        return spearman(self.first, self.second)

    @property
    def median_ratio(self) -> float:
        """Of the second to the first, over examples with a first score above zero."""
        some = self.first > 0
        return float((self.second[some] / self.first[some]).median()) if bool(some.any()) else float("nan")

    @property
    def overlap(self) -> float:
        """Share of the first's most informative tenth that is in the second's."""
        tenth = max(1, len(self.first) // 10)
        tops = [set(scores.argsort(descending=True)[:tenth].tolist()) for scores in (self.first, self.second)]
        return len(tops[0] & tops[1]) / tenth


def movements(grid: Grid, scores: ScoresOf) -> list[Movement]:
    """For each row, every pair of erasers, the control first; runs without scores (None) are left out."""
    found = []
    for row in grid.rows:
        own = {column: scores(grid.cells[row][column]) for column in grid.columns if column in grid.cells[row]}
        stored = {column: one for column, one in own.items() if one is not None}
        for before, after in combinations(stored, 2):
            a, b = stored[before], stored[after]
            if torch.equal(a.index, b.index):
                found.append(Movement(row, before, after, a.f_si_nats.mean(0), b.f_si_nats.mean(0)))
    return found


def draw_movements(found: list[Movement], grid: Grid, path: Path) -> Path:
    """Draw `movement_figure` to a file."""
    with mpl.rc_context(STYLE):
        movement_figure(found, lambda eraser: colour(eraser, grid.columns)).savefig(path)
    return path


def movement_figure(found: Sequence[Movement], colour_of: Callable[[str], str]) -> Figure:
    """A panel per pair, a point per example, on logarithmic axes; on the diagonal nothing has moved."""
    wide = min(3, len(found))
    tall = -(-len(found) // wide)
    figure = Figure(figsize=(4.2 * wide + 0.4, 4.0 * tall + 0.3), layout="constrained")
    for i, movement in enumerate(found):
        _panel(figure.add_subplot(tall, wide, i + 1), movement, colour_of(movement.after))
    return figure


def _panel(ax: Axes, movement: Movement, line: str) -> None:
    a, b = movement.first, movement.second
    smallest = float(torch.cat([a[a > 0], b[b > 0], torch.tensor([1e300])]).min())
    a, b = a.clamp(min=smallest), b.clamp(min=smallest)
    ax.scatter(a, b, s=9, alpha=0.55, linewidths=0, color=line, rasterized=True)  # in the PDF: thousands of points
    ends = [float(torch.minimum(a, b).min()), float(torch.maximum(a, b).max())]
    ax.plot(ends, ends, color="#999999", linewidth=1, linestyle=(0, (4, 3)))
    rank = "" if movement.spearman is None else f"\nrank correlation {movement.spearman:.2f}"
    ax.set(title=movement.row + rank, xlabel=f"F-SI, {movement.before} (nats)", ylabel=f"F-SI, {movement.after}")
    ax.set_xscale("log")
    ax.set_yscale("log")
