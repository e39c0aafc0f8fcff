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
from harness.results.labels import labels
from harness.results.read import KNOWN
from harness.results.statistics import Spread
from harness.style import shared_legend, wrapped
from harness.trained import Coded
from scripts.report.groups import Block, Row

Colours = Mapping[str, str]
Point = tuple[int, float, float, bool]  # x, middle, half a band, whole

_LIMITS = {"ntk": (0, (5, 2)), "nngp": (0, (1, 1.5))}  # kernels of networks of infinite width, and their dashes
_BITS, _MORE_BITS = "codelength ± std\n(bits per label)", "increase over control ± s.e.\n(bits per label)"
_ZERO = {"color": "#999999", "linewidth": 1, "linestyle": (0, (4, 3))}


def overview(rows: Sequence[Row], erasers: Sequence[str], colours: Colours) -> Figure:
    """On the left every codelength, on the right its difference to the control's; a line per model."""
    names = [wrapped(row.label, 3.0) for row in rows]
    lines = sum(name.count("\n") for name in names)
    figure = Figure(figsize=(9.5, 2.0 + 0.55 * len(rows) + 0.2 * lines), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for i, eraser in enumerate(erasers):
        offset = 0.6 * ((i + 0.5) / len(erasers) - 0.5)
        for ax, points in ((left, _codelengths), (right, _increases)):
            for place, middle, half, whole in points(rows, eraser, rows.index):
                ax.errorbar(
                    middle, place + offset, xerr=half, fmt="o", markersize=5, color=colours[eraser], elinewidth=1.2,
                    markerfacecolor=colours[eraser] if whole else "white", label=eraser,
                )  # fmt: skip
    right.axvline(0, **_ZERO)
    right.set_yticks(range(len(rows)), names)
    right.set(ylim=(len(rows) - 0.5, -0.5), xlabel=_MORE_BITS)
    left.set(xlim=(0, 1.03 * left.get_xlim()[1]), xlabel=_BITS)
    for ax in (left, right):
        ax.grid(axis="y", visible=False)
    shared_legend(figure, [left, right])
    return figure


def scaling(panels: Mapping[str, list[Row]], option: str, colours: Colours, block: Block) -> Figure:
    """Above, codelengths; below, their differences to the control; a column per panel; hollow where not `sound`.

    Over width, dashed and dotted lines are those of infinite width.
    """

    def size(row: Row) -> int:
        return row.model[option]

    figure = Figure(figsize=(max(5.0, 3.4 * len(panels)), 6.6), layout="constrained")
    axes = figure.subplots(2, len(panels), squeeze=False, sharex="col", sharey="row")
    for (above, below), (title, rows) in zip(axes.T, panels.items(), strict=True):
        erasers = sorted({entry.eraser for row in rows for entry in row.run}, key=list(colours).index)
        for eraser in erasers:
            _band(above, list(_codelengths(rows, eraser, size)), colours[eraser], eraser)
            if eraser != "control":
                _band(below, list(_increases(rows, eraser, size)), colours[eraser], eraser)
        for row in infinite_width(block, rows) if option == "width" else ():
            _limit(above, _codelengths, row, colours)
            _limit(below, _increases, row, colours)
        below.axhline(0, **_ZERO)
        above.set_title(wrapped(title, 3.0))
        below.set_xlabel({"width": "width (units or channels)", "depth": "depth (layers or blocks)"}[option])
        _log2_axis(below, [size(row) for row in rows])
    axes[0, 0].set_ylabel(_BITS)
    axes[1, 0].set_ylabel(_MORE_BITS)
    shared_legend(figure, list(axes.flat))
    return figure


def scaling_panels(block: Block, option: str) -> dict[str, list[Row]]:
    """Rows that differ in one number of the model only, at least two of them; by title, the base sizes first."""
    panels: dict[str, list[Row]] = {}
    for row in block.rows:
        if isinstance(row.model.get(option), int) and row.model[option] > 0:
            panels.setdefault(json.dumps(_without(row, option), sort_keys=True), []).append(row)
    several = (rows for rows in panels.values() if len(rows) > 1 and any(row.run for row in rows))
    kept = sorted(several, key=lambda rows: (len(unlike_base(rows[0]) - {option, "activation"}), -len(rows)))
    titles = [_title(rows[0].model, option) for rows in kept]
    if len(set(titles)) < len(titles):  # they differ in something else
        titles = labels([{"model": _without(rows[0], option)} for rows in kept], ("model",))
    by_size = (sorted(rows, key=lambda row: row.model[option]) for rows in kept)
    return dict(zip(titles, by_size, strict=True))


def unlike_base(row: Row) -> set[str]:
    """Numbers and options of the model that are not its YAML's."""
    model = row.model
    base = preset("model", model["name"]) if model["name"] in KNOWN["model"] else {}
    return {key for key in base if key in model and model[key] != base[key]}


def infinite_width(block: Block, rows: Sequence[Row]) -> list[Row]:
    """Of the kernels of infinitely wide MLPs, those that a panel of ReLU MLPs over width tends to: of their depth."""
    first = rows[0].model
    if first["name"] != "mlp" or first.get("activation") != "relu":
        return []
    found = (row for row in block.rows if str(row.model.get("kernel")) in _LIMITS)
    return [row for row in found if row.model.get("depth") == first.get("depth")]


def _title(model: Options, option: str) -> str:
    fixed = [f"{k}={model[k]}" for k in ("width", "depth") if k in model and k != option]
    return ", ".join([model["name"], *([f"{model['activation']}"] if "activation" in model else []), *fixed])


def _without(row: Row, option: str) -> Options:
    return {key: value for key, value in row.model.items() if key != option}


def _codelengths(rows: Sequence[Row], eraser: str, x: Callable[[Row], int]) -> Iterator[Point]:
    for row in rows:
        entry = row.entries[eraser]
        if isinstance(entry.result, Coded):
            spread = Spread.of(entry.result.mdl.bits_per_sample)
            yield x(row), spread.mean, spread.std or 0.0, entry.sound


def _increases(rows: Sequence[Row], eraser: str, x: Callable[[Row], int]) -> Iterator[Point]:
    for row in rows:
        if (found := row.entries[eraser].code) is not None:
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


def _limit(ax: Axes, points: Callable[..., Iterator[Point]], row: Row, colours: Colours) -> None:
    """A line across for each eraser."""
    kernel = row.model["kernel"]
    for entry in row.run:
        for _, middle, _, _ in points([row], entry.eraser, lambda _: 0):
            label = f"{entry.eraser}, infinite width ({kernel})"
            ax.axhline(middle, color=colours[entry.eraser], linestyle=_LIMITS[kernel], linewidth=1.3, label=label)


def _log2_axis(ax: Axes, values: Sequence[int]) -> None:
    ticks = sorted(set(values))
    kept = ticks[:: max(1, math.ceil(len(ticks) / 6))]
    ax.set_xscale("log", base=2)
    ax.set_xticks(kept, [f"{value:,}" for value in kept])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.minorticks_off()
