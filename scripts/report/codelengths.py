"""Figures of codelengths and of what erasure adds to them: of every model, and over width and depth."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from conf import Options
from conf.groups import preset
from harness.results.arrange import Comparison, Row
from harness.results.labels import Label, display_name, labels
from harness.results.read import KNOWN
from harness.results.statistics import Spread
from harness.style import shared_legend, wrapped
from harness.trained import Coded

Colours = Mapping[Label, str]
Point = tuple[int, float, float, bool]  # x, middle, half a band, whole
Measure = Callable[[Sequence[Row], Label, Callable[[Row], int]], Iterator[Point]]  # of an eraser's rows, by their x

_LIMITS = {"ntk": (0, (5, 2)), "nngp": (0, (1, 1.5))}  # kernels of networks of infinite width, and their dashes
_BITS, _MORE_BITS = "codelength ± std\n(bits per label)", "increase over control ± s.e.\n(bits per label)"
_ZERO = {"color": "#999999", "linewidth": 1, "linestyle": (0, (4, 3))}


def overview(rows: Sequence[Row], erasers: Sequence[Label], colours: Colours) -> Figure:
    """Draw every codelength, and at the right its difference to the control's; a line per model."""
    names = [wrapped(row.label.display, 3.0) for row in rows]
    lines = sum(name.count("\n") for name in names)
    measures = _measures(rows)
    size = (1.5 + 4.0 * len(measures), 2.0 + 0.55 * len(rows) + 0.2 * lines)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for ax, (label, points) in zip(axes, measures.items(), strict=True):
        for i, eraser in enumerate(erasers):
            offset = 0.6 * ((i + 0.5) / len(erasers) - 0.5)
            for place, middle, half, whole in points(rows, eraser, rows.index):
                ax.errorbar(
                    middle, place + offset, xerr=half, fmt="o", markersize=5, color=colours[eraser], elinewidth=1.2,
                    markerfacecolor=colours[eraser] if whole else "white", label=eraser.display,
                )  # fmt: skip
        if points is _increases:
            ax.axvline(0, **_ZERO)
        ax.set_xlabel(label)
        ax.grid(axis="y", visible=False)
    axes[0].set_yticks(range(len(rows)), names)
    axes[0].set(ylim=(len(rows) - 0.5, -0.5), xlim=(0, 1.03 * axes[0].get_xlim()[1]))
    shared_legend(figure, list(axes))
    return figure


def scaling(panels: Mapping[str, list[Row]], option: str, colours: Colours, comparison: Comparison) -> Figure:
    """Draw codelengths, and below them their differences to the control; a column per panel; hollow where not `sound`.

    Over width, dashed and dotted lines are those of infinite width.
    """

    def size(row: Row) -> int:
        return row.model[option]

    measures = _measures([row for rows in panels.values() for row in rows])
    figure = Figure(figsize=(max(5.0, 3.4 * len(panels)), 1.0 + 2.8 * len(measures)), layout="constrained")
    axes = figure.subplots(len(measures), len(panels), squeeze=False, sharex="col", sharey="row")
    for column, (title, rows) in zip(axes.T, panels.items(), strict=True):
        erasers = sorted({entry.eraser for row in rows for entry in row.run}, key=list(colours).index)
        for ax, points in zip(column, measures.values(), strict=True):
            for eraser in erasers:
                _band(ax, list(points(rows, eraser, size)), colours[eraser], eraser.display)
            for row in infinite_width(comparison, rows) if option == "width" else ():
                _limit(ax, points, row, colours)
            if points is _increases:
                ax.axhline(0, **_ZERO)
        column[0].set_title(wrapped(title, 3.0))
        column[-1].set_xlabel({"width": "width (units or channels)", "depth": "depth (layers or comparisons)"}[option])
        _log2_axis(column[-1], [size(row) for row in rows])
    for ax, label in zip(axes[:, 0], measures, strict=True):
        ax.set_ylabel(label)
    shared_legend(figure, list(axes.flat))
    return figure


def scaling_panels(comparison: Comparison, option: str) -> dict[str, list[Row]]:
    """Rows that differ in one number of the model only, at least two of them; by title, the base sizes first."""
    panels: dict[str, list[Row]] = {}
    for row in comparison.rows:
        if isinstance(row.model.get(option), int) and row.model[option] > 0:
            panels.setdefault(json.dumps(_without(row, option), sort_keys=True), []).append(row)
    several = (rows for rows in panels.values() if len(rows) > 1 and any(row.run for row in rows))
    kept = sorted(several, key=lambda rows: (len(unlike_base(rows[0]) - {option, "activation"}), -len(rows)))
    titles = [_title(rows[0].model, option) for rows in kept]
    if len(set(titles)) < len(titles):  # they differ in something else
        titles = [one.display for one in labels([{"model": _without(rows[0], option)} for rows in kept], ("model",))]
    by_size = (sorted(rows, key=lambda row: row.model[option]) for rows in kept)
    return dict(zip(titles, by_size, strict=True))


def unlike_base(row: Row) -> set[str]:
    """Numbers and options of the model that are not its YAML's."""
    model = row.model
    base = preset("model", model["name"]) if model["name"] in KNOWN["model"] else {}
    return {key for key in base if key in model and model[key] != base[key]}


def infinite_width(comparison: Comparison, rows: Sequence[Row]) -> list[Row]:
    """Return kernels of infinitely wide MLPs of the depth of a panel of ReLU MLPs over width."""
    first = rows[0].model
    if first["name"] != "mlp" or first.get("activation") != "relu":
        return []
    found = (row for row in comparison.rows if str(row.model.get("kernel")) in _LIMITS)
    return [row for row in found if row.model.get("depth") == first.get("depth")]


def _title(model: Options, option: str) -> str:
    fixed = [f"{k}={model[k]}" for k in ("width", "depth") if k in model and k != option]
    return ", ".join(
        [display_name(model["name"]), *([f"{model['activation']}"] if "activation" in model else []), *fixed]
    )


def _without(row: Row, option: str) -> Options:
    return {key: value for key, value in row.model.items() if key != option}


def _measures(rows: Sequence[Row]) -> dict[str, Measure]:
    """Return what there is to draw by the label of its axis; where nothing is compared, no panel of differences."""
    compared = any(entry.code_difference is not None for row in rows for entry in row.run)
    return {_BITS: _codelengths, **({_MORE_BITS: _increases} if compared else {})}


def _codelengths(rows: Sequence[Row], eraser: Label, x: Callable[[Row], int]) -> Iterator[Point]:
    for row in rows:
        entry = row.entries[eraser]
        if isinstance(entry.result, Coded):
            spread = Spread.of(entry.result.mdl.bits_per_sample)
            yield x(row), spread.mean, spread.std or 0.0, entry.sound


def _increases(rows: Sequence[Row], eraser: Label, x: Callable[[Row], int]) -> Iterator[Point]:
    for row in rows:
        if (found := row.entries[eraser].code_difference) is not None:
            control = next(entry for entry in row.run if entry.is_control)
            yield x(row), found.mean, found.standard_error or 0.0, row.entries[eraser].sound and control.sound


def _band(ax: Axes, points: Sequence[Point], line: str, label: str) -> None:
    if not points:
        return
    x, middle, half, whole = (np.array(column) for column in zip(*points, strict=True))
    ax.plot(x, middle, color=line, linewidth=1.8, label=label)
    ax.fill_between(x, middle - half, middle + half, color=line, alpha=0.18, linewidth=0)
    for chosen, face in ((whole, line), (~whole, "white")):
        ax.plot(x[chosen], middle[chosen], "o", color=line, markerfacecolor=face, markersize=5)


def _limit(ax: Axes, points: Measure, row: Row, colours: Colours) -> None:
    """Draw a line across for each eraser."""
    kernel = row.model["kernel"]
    for entry in row.run:
        for _, middle, _, _ in points([row], entry.eraser, lambda _: 0):
            label = f"{entry.eraser.display}, infinite width ({kernel})"
            ax.axhline(middle, color=colours[entry.eraser], linestyle=_LIMITS[kernel], linewidth=1.3, label=label)


def _log2_axis(ax: Axes, values: Sequence[int]) -> None:
    ticks = sorted(set(values))
    kept = ticks[:: max(1, math.ceil(len(ticks) / 6))]
    ax.set_xscale("log", base=2)
    ax.set_xticks(kept, [f"{value:,}" for value in kept])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.minorticks_off()
