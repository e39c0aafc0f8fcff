"""The comparison as a figure: learning curves with their spread over seeds, and what erasure costs."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.result import MdlResult, of_common_seeds
from harness.results.arrange import Grid
from harness.results.labels import spelled
from harness.results.panels import panel_size, panels
from harness.results.statistics import paired_difference, seeds_text, signed
from harness.style import chance_line, colour, figure_at, line_width, literal, shared_legend, wrapped
from harness.trained import stuck

if TYPE_CHECKING:  # a figure drawn before is copied without matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(grid: Grid[MdlResult], path: Path) -> Path:
    """Draw the comparison to `path`."""
    with figure_at(path, *panel_size(_panel_count(grid))) as figure:
        draw_in(figure, grid)
    return path


def draw_in(figure: "Figure", grid: Grid[MdlResult]) -> None:
    """A learning-curve panel per row, and bars of the differences to control."""
    count = _panel_count(grid)
    axes = panels(figure, count)
    for row, ax in zip(grid.rows, axes, strict=False):
        _learning_curves(ax, grid.cells[row], grid.columns, row)
    if count > len(grid.rows):
        _differences(axes[-1], grid)
    shared_legend(figure, axes[: len(grid.rows)])


def _panel_count(grid: Grid[MdlResult]) -> int:
    has_bars = any(grid.control(row) is not None and len(grid.cells[row]) > 1 for row in grid.rows)
    return len(grid.rows) + has_bars


def _learning_curves(ax: "Axes", runs: Mapping[str, MdlResult], columns: Sequence[str], title: str) -> None:
    """Loss on the next chunk over training size, mean and standard deviation over seeds."""
    from matplotlib.ticker import NullFormatter

    ticks: list[int] = []
    for column in (c for c in columns if c in runs):
        points = [point for point in runs[column].curve if point.ce_next_bits is not None]
        sizes = [point.n for point in points]
        losses = np.array([point.ce_next_bits for point in points])
        middle = losses.mean(1)
        spread = losses.std(1, ddof=1) if losses.shape[1] > 1 else np.zeros_like(middle)
        line = colour(column, columns)
        width = line_width(column, columns)
        ax.plot(sizes, middle, color=line, marker="o", markersize=2 + width, linewidth=width, label=column)
        ax.fill_between(sizes, np.maximum(middle - spread, 0), middle + spread, color=line, alpha=0.18, linewidth=0)
        ticks = sizes[::-1][:: max(1, math.ceil(len(sizes) / 5))][::-1]
    chance = math.log2(next(iter(runs.values())).num_classes)
    chance_line(ax, chance, "uniform code")
    ax.set_xscale("log")
    ax.set_xticks(ticks, [f"{n:,}" for n in ticks])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.minorticks_off()
    counts = {literal(spelled(column)): count for column, run in runs.items() if (count := stuck(run.curve))}
    marks = [f"‡ {eraser}: {count} trainings on the plateau" for eraser, count in counts.items()]
    ax.set(
        title="\n".join([wrapped(title, 4.0), *marks]),
        xlabel="training examples",
        ylabel="loss on the next chunk (bits per label)",
    )


def _differences(ax: "Axes", grid: Grid[MdlResult]) -> None:
    """Bars of paired differences to the control with their standard errors, grouped by row."""
    from matplotlib.ticker import FuncFormatter

    columns = [c for c in grid.columns if not c.startswith("control")]
    height, counts = 0.8 / max(2, len(columns)), set[int]()
    for i, row in enumerate(grid.rows):
        if (control := grid.control(row)) is None:
            continue
        own = [column for column in columns if column in grid.cells[row]]
        for j, column in enumerate(own):
            if (pair := of_common_seeds(grid.cells[row][column], control)) is None:
                continue
            counts.add(len(pair[0].seeds))
            difference = paired_difference(pair[0].mdl.bits_per_sample, pair[1].mdl.bits_per_sample)
            error = difference.standard_error or 0.0
            spread = ", one seed" if difference.standard_error is None else f" ± {error:.3f}"
            y = i + (j - (len(own) - 1) / 2) * height
            ax.barh(
                y, difference.mean, height * 0.85, xerr=error or None, color=colour(column, grid.columns),
                capsize=3, ecolor="#333333",
            )  # fmt: skip
            above = difference.mean >= 0
            ax.annotate(
                f"{signed(difference.mean)}{spread}", (difference.mean + (error if above else -error), y),
                xytext=(6 if above else -6, 0), textcoords="offset points", ha="left" if above else "right",
                va="center", fontsize=9, color="#333333",
            )  # fmt: skip
    ax.axvline(0, color="#333333", linewidth=1)
    ax.set_yticks(range(len(grid.rows)), [wrapped(row, 1.8) for row in grid.rows])
    ax.set_ylim(len(grid.rows) - 0.4, -0.6)
    ax.margins(x=0.45)
    ax.grid(axis="y", visible=False)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
    over = " or ".join(seeds_text(count) for count in sorted(counts - {1}))
    title = f"cost of erasure ± standard error, {over}" if over else "cost of erasure"
    ax.set(title=title, xlabel="codelength minus control (bits per label)")
