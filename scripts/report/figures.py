"""Figures of a report: learning curves, codelengths over width and depth, loss curves."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from harness.results.arrange import Comparison, Row
from harness.results.labels import Label, labels
from harness.results.panels import loss_lines, panel_size, panels
from harness.results.statistics import Spread
from harness.style import chance_line, epoch_axis, line_width, shared_legend, wrapped
from harness.trained import Coded
from mdl.figure import draw_in
from scripts.report.write import Drawing

Colours = Mapping[Label, str]
Point = tuple[int, float, float, bool]  # size of the model, mean, half a band, whether it is sound
Measure = Callable[[Sequence[Row], Label, str], Iterator[Point]]

MAX_PANELS = 6  # of one figure; more would be too small to print
_BITS, _MORE_BITS = "codelength ± std\n(bits per label)", "increase over control ± s.e.\n(bits per label)"


def drawings_of(comparison: Comparison, colours: Colours) -> list[Drawing]:
    """Return the figures that the runs of a comparison allow."""
    coded = [row for row in comparison.rows if row.run and comparison.command == "mdl"]
    with_curves = [row for row in comparison.rows if any(entry.curves for entry in row.run)]
    drawings = _in_parts(comparison, "learning curves", coded, MAX_PANELS - 1, partial(_learning_curves, colours))
    for option in ("width", "depth") if coded else ():
        sizes = scaling_panels(comparison, option)
        drawings += _in_parts(comparison, f"over {option}", sizes, MAX_PANELS, partial(_scaling, colours, option))
    return drawings + _in_parts(comparison, "loss curves", with_curves, MAX_PANELS, partial(_loss_curves, colours))


def _in_parts(
    comparison: Comparison, title: str, shown: Sequence[object], most: int, draw: Callable[..., Figure]
) -> list[Drawing]:
    """Split what has no room in one figure over several."""
    parts = [shown[i : i + most] for i in range(0, len(shown), most)]
    titles = [title, *(f"{title} {i + 2}" for i in range(len(parts) - 1))]
    return [Drawing(f"{comparison.name}-{t}", t, partial(draw, part)) for t, part in zip(titles, parts, strict=False)]


def _learning_curves(colours: Colours, rows: Sequence[Row]) -> Figure:
    """Draw what has finished as a sweep draws it."""
    figure = Figure(figsize=panel_size(len(rows) + 1), layout="constrained")
    draw_in(figure, rows, list(colours))
    return figure


def _loss_curves(colours: Colours, rows: Sequence[Row]) -> Figure:
    """Draw validation loss over epochs on the whole dataset, a panel per model and size."""
    figure = Figure(figsize=panel_size(len(rows)), layout="constrained")
    axes = panels(figure, len(rows))
    for ax, row in zip(axes, rows, strict=True):
        for entry in row.run:
            loss_lines(
                ax,
                [*entry.curves.values()],
                "validation_bits",
                color=colours[entry.eraser],
                linewidth=line_width(list(colours).index(entry.eraser)),
                linestyle="--" if entry.missing else "-",
                label=f"{entry.eraser.display} ({entry.missing})" if entry.missing else entry.eraser.display,
            )
        chance_line(ax, math.log2(next(e.result.num_classes for e in row.run if e.result)), "uniform code")
        ax.set_title(wrapped(row.label.display, 4.0), fontsize=10)
        ax.set(xlabel="epoch", ylabel="validation loss (bits per label)")
        epoch_axis(ax, max(curve.epochs[-1] for entry in row.run for curve in entry.curves.values()))
    shared_legend(figure, axes)
    return figure


def scaling_panels(comparison: Comparison, option: str) -> list[tuple[str, list[Row]]]:
    """Return rows whose models differ in one number only, by size, at least two of them, under what they share."""
    by_shared: dict[str, list[Row]] = {}
    for row in comparison.rows:
        if isinstance(row.model.get(option), int) and row.model[option] > 0:
            shared = {key: value for key, value in row.model.items() if key != option}
            by_shared.setdefault(json.dumps(shared, sort_keys=True), []).append(row)
    several = {shared: rows for shared, rows in by_shared.items() if len(rows) > 1 and any(row.run for row in rows)}
    titles = labels([{"model": json.loads(shared)} for shared in several], ("model",))
    by_size = (sorted(rows, key=lambda row: row.model[option]) for rows in several.values())
    return [(title.display, rows) for title, rows in zip(titles, by_size, strict=True)]


def _scaling(colours: Colours, option: str, shown: Sequence[tuple[str, list[Row]]]) -> Figure:
    """Draw codelengths, and below them their differences to the control; a column per panel; hollow where unsound."""
    compared = any(entry.code_difference is not None for _, rows in shown for row in rows for entry in row.run)
    measures: dict[str, Measure] = {_BITS: _codelengths, **({_MORE_BITS: _increases} if compared else {})}
    figure = Figure(figsize=(max(5.0, 3.4 * len(shown)), 1.0 + 2.8 * len(measures)), layout="constrained")
    axes = figure.subplots(len(measures), len(shown), squeeze=False, sharex="col", sharey="row")
    for column, (title, rows) in zip(axes.T, shown, strict=True):
        erasers = sorted({entry.eraser for row in rows for entry in row.run}, key=list(colours).index)
        for ax, points in zip(column, measures.values(), strict=True):
            for eraser in erasers:
                _band(ax, list(points(rows, eraser, option)), colours[eraser], eraser.display)
        if compared:
            column[-1].axhline(0, color="#999999", linewidth=1, linestyle=(0, (4, 3)))
        column[0].set_title(wrapped(title, 3.0))
        column[-1].set_xlabel({"width": "width (units or channels)", "depth": "depth (layers or comparisons)"}[option])
        _log2_axis(column[-1], [row.model[option] for row in rows])
    for ax, label in zip(axes[:, 0], measures, strict=True):
        ax.set_ylabel(label)
    shared_legend(figure, list(axes.flat))
    return figure


def _codelengths(rows: Sequence[Row], eraser: Label, option: str) -> Iterator[Point]:
    for row in rows:
        entry = row.entries[eraser]
        if isinstance(entry.result, Coded):
            spread = Spread.of(entry.result.mdl.bits_per_sample)
            yield row.model[option], spread.mean, spread.std or 0.0, entry.sound


def _increases(rows: Sequence[Row], eraser: Label, option: str) -> Iterator[Point]:
    for row in rows:
        if (difference := row.entries[eraser].code_difference) is not None:
            control = next(entry for entry in row.run if entry.is_control)
            yield (
                row.model[option],
                difference.mean,
                difference.standard_error or 0.0,
                row.entries[eraser].sound and control.sound,
            )


def _band(ax: Axes, points: Sequence[Point], line: str, label: str) -> None:
    if not points:
        return
    x, middle, half, whole = (np.array(column) for column in zip(*points, strict=True))
    ax.plot(x, middle, color=line, linewidth=1.8, label=label)
    ax.fill_between(x, middle - half, middle + half, color=line, alpha=0.18, linewidth=0)
    for chosen, face in ((whole, line), (~whole, "white")):
        ax.plot(x[chosen], middle[chosen], "o", color=line, markerfacecolor=face, markersize=5)


def _log2_axis(ax: Axes, values: Sequence[int]) -> None:
    ticks = sorted(set(values))
    labelled = ticks[:: max(1, math.ceil(len(ticks) / 6))]
    ax.set_xscale("log", base=2)
    ax.set_xticks(labelled, [f"{value:,}" for value in labelled])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.minorticks_off()
