"""The comparison as a figure: learning curves with their spread over seeds, and what erasure costs."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from harness.figures import chance_line, eraser_colours, figure_at, line_width, literal, shared_legend, wrapped
from harness.results.arrange import Comparison, Rows
from harness.results.entries import Entry
from harness.results.panels import panel_size, panels
from harness.results.run_labels import Label
from harness.results.statistics import Difference, seeds_text, signed


def draw(comparison: Comparison, path: Path) -> Path:
    """Draw a panel of learning curves per row, and bars of the differences to control, to `path`."""
    rows, colours = comparison.rows, eraser_colours(comparison.erasers)
    compares = any(entry["code_difference"] is not None for entry in comparison.entries)
    with figure_at(path, *panel_size(len(rows) + compares)) as figure:
        axes = panels(figure, len(rows) + compares)
        for (label, entries), ax in zip(rows.items(), axes, strict=False):
            _learning_curves(ax, label, [entry for entry in entries if entry["runs"]], colours)
        if compares:
            _differences(axes[-1], rows, colours)
        shared_legend(figure, axes[: len(rows)])
    return path


def _learning_curves(ax: Axes, label: Label, entries: Sequence[Entry], colours: Mapping[Label, str]) -> None:
    """Draw the loss on the next chunk over training size, mean and standard deviation over seeds."""
    ticks: list[int] = []
    for entry in entries:
        curves = [
            {point.n: point.ce_next_bits[s] for point in result.curve if point.ce_next_bits is not None}
            for result, s in entry["members"].values()
        ]
        sizes, losses = [*curves[0]], np.array([[*curve.values()] for curve in curves])
        middle = losses.mean(0)
        spread = losses.std(0, ddof=1) if len(losses) > 1 else np.zeros_like(middle)
        eraser = entry["eraser"]
        line, width = colours[eraser], line_width(list(colours).index(eraser))
        ax.plot(sizes, middle, color=line, marker="o", markersize=2 + width, linewidth=width, label=eraser.display)
        ax.fill_between(sizes, np.maximum(middle - spread, 0), middle + spread, color=line, alpha=0.18, linewidth=0)
        ticks = sizes[::-1][:: max(1, math.ceil(len(sizes) / 5))][::-1]
    chance_line(ax, math.log2(entries[0]["num_classes"]), "uniform code")
    ax.set_xscale("log")
    ax.set_xticks(ticks, [f"{n:,}" for n in ticks])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.minorticks_off()
    counts = {entry["eraser"]: entry["published_on_plateau"] for entry in entries}
    marks = [f"‡ {literal(eraser.display)}: {of} trainings on the plateau" for eraser, of in counts.items() if of]
    ax.set(
        title="\n".join([wrapped(label.display, 4.0), *marks]),
        xlabel="training examples",
        ylabel="loss on the next chunk (bits per label)",
    )


def _differences(ax: Axes, rows: Rows, colours: Mapping[Label, str]) -> None:
    """Draw bars of paired differences to the control with their standard errors, grouped by row."""
    height, counts = 0.8 / max(2, sum(eraser.name != "control" for eraser in colours)), set[int]()
    for i, entries in enumerate(rows.values()):
        compared = [entry for entry in entries if entry["code_difference"] is not None]
        for j, entry in enumerate(compared):
            difference: Difference = entry["code_difference"]
            counts.add(difference.seeds)
            error = difference.standard_error or 0.0
            spread = ", one seed" if difference.standard_error is None else f" ± {error:.3f}"
            y = i + (j - (len(compared) - 1) / 2) * height
            ax.barh(
                y, difference.mean, height * 0.85, xerr=error or None, color=colours[entry["eraser"]],
                capsize=3, ecolor="#333333",
            )  # fmt: skip
            above = difference.mean >= 0
            ax.annotate(
                f"{signed(difference.mean)}{spread}", (difference.mean + (error if above else -error), y),
                xytext=(6 if above else -6, 0), textcoords="offset points", ha="left" if above else "right",
                va="center", fontsize=9, color="#333333",
            )  # fmt: skip
    ax.axvline(0, color="#333333", linewidth=1)
    ax.set_yticks(range(len(rows)), [wrapped(label.display, 1.8) for label in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.margins(x=0.45)
    ax.grid(axis="y", visible=False)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
    over = " or ".join(seeds_text(count) for count in sorted(counts - {1}))
    title = f"cost of erasure ± standard error, {over}" if over else "cost of erasure"
    ax.set(title=title, xlabel="codelength minus control (bits per label)")
