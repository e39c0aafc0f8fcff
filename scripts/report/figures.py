"""The report's figures: codelengths, also over width and depth, what erasure adds to them, loss curves."""

import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from conf import Options
from conf.groups import keys as read_keys
from harness.compare import Grid, Spread
from harness.labels import labels
from harness.panels import loss_lines, panel_size, panels
from harness.result import MdlResult
from harness.style import chance_line, epoch_axis, line_width, shared_legend, wrapped
from harness.trained import Coded
from mdl.figure import draw_in
from scripts.report.drawing import MAX_PANELS, Colours, Drawing, Note, at_most
from scripts.report.groups import Block, Row
from scripts.report.read import KNOWN

MAX_ROWS = 24  # models in an overview
MAX_FIGURES = 8  # of one kind; a figure takes a second

_LIMITS = {"ntk": (0, (5, 2)), "nngp": (0, (1, 1.5))}  # kernels of networks of infinite width, and their dashes

keys = functools.cache(read_keys)


def block_drawings(blocks: Sequence[Block], colours: Colours, note: Note) -> list[Drawing]:
    """What the runs allow; notes what is left out."""
    coded = [block for block in blocks if block.verb == "mdl"]
    overviews = [
        Drawing(f"{b.name}-codelengths", _labels(b.rows[MAX_ROWS:]), functools.partial(_overview, b, colours))
        for b in coded
    ]
    curves = [
        Drawing(f"{b.name}-learning-curves", _labels(rows[MAX_PANELS - 1 :]), functools.partial(_learning_curves, rows))
        for b in coded
        if (rows := [row for row in b.rows if row.run])
    ]
    scalings = [
        Drawing(f"{b.name}-over-{o}", list(panels)[MAX_PANELS:], functools.partial(_scaling, panels, o, colours, b))
        for b in coded
        for o in ("width", "depth")
        if (panels := scaling_panels(b, o))
    ]
    losses = [
        Drawing(f"{b.name}-{m}-loss-curves", _labels(r[MAX_PANELS:]), functools.partial(_loss_figure, r, colours))
        for b in blocks
        for m, r in _with_curves(b).items()
    ]
    kinds = (overviews, scalings, curves, losses)
    drawings = [drawing for kind in kinds for drawing in at_most(MAX_FIGURES, kind, note)]
    for block in blocks:
        _note_gaps(block, note)
    return drawings


def _labels(rows: Sequence[Row]) -> list[str]:
    return [row.label for row in rows]


def _note_gaps(block: Block, note: Note) -> None:
    """A line on the points and curves that figures of a block have no numbers for."""
    entries = [entry for row in block.rows for entry in row.run]
    coded = block.verb == "mdl"
    alone = [f"{e.row}, {e.eraser}" for e in entries if coded and e.code is None and not e.is_control]
    bare = [f"{e.row}, {e.eraser}" for e in entries if e.result and not set(e.result.seeds) <= set(e.cell.curves)]
    for what, which in (("increase over control, no control with its seeds", alone), ("loss curve of all seeds", bare)):
        if which:
            more = f" and {len(which) - 3} more" if len(which) > 3 else ""
            note(f"figures of {block.name}: without {what}: {'; '.join(which[:3])}{more}")


def _with_curves(block: Block) -> dict[str, list[Row]]:
    """Rows with loss curves by model; those of the base width or depth first, then by size."""
    found: dict[str, list[Row]] = {}
    for row in block.rows:
        if any(entry.cell.curves for entry in row.run):
            found.setdefault(row.model["name"], []).append(row)
    return {model: sorted(rows, key=lambda row: len(_unlike_base(row))) for model, rows in found.items()}


def _unlike_base(row: Row) -> set[str]:
    """Numbers and options of the model that are not its YAML's."""
    model = row.model
    base = keys("model", model["name"]) if model["name"] in KNOWN["model"] else {}
    return {key for key in base if key in model and model[key] != base[key]}


def scaling_panels(block: Block, option: str) -> dict[str, list[Row]]:
    """Rows that differ in one number of the model only, at least two of them; by title, the base sizes first."""
    panels: dict[str, list[Row]] = {}
    for row in block.rows:
        if isinstance(row.model.get(option), int):
            panels.setdefault(json.dumps(_without(row, option), sort_keys=True), []).append(row)
    several = (rows for rows in panels.values() if len(rows) > 1)
    kept = sorted(several, key=lambda rows: (len(_unlike_base(rows[0]) - {option, "activation"}), -len(rows)))
    titles = [_title(rows[0].model, option) for rows in kept]
    if len(set(titles)) < len(titles):  # they differ in something else
        titles = labels([{"model": _without(rows[0], option)} for rows in kept], ("model",))
    by_size = (sorted(rows, key=lambda row: row.model[option]) for rows in kept)
    return dict(zip(titles, by_size, strict=True))


def infinite_width(block: Block, rows: Sequence[Row]) -> list[Row]:
    """Of the kernels of infinitely wide MLPs, those that a panel of ReLU MLPs over width tends to: of their depth."""
    first = rows[0].model
    if first["name"] != "mlp" or first.get("activation") != "relu":
        return []
    found = (row for row in block.rows if row.model.get("kernel") in _LIMITS)
    return [row for row in found if row.model["depth"] == first["depth"]]


def _title(model: Options, option: str) -> str:
    fixed = [f"{k}={model[k]}" for k in ("width", "depth") if k in model and k != option]
    return ", ".join([model["name"], *([model["activation"]] if "activation" in model else []), *fixed])


def _without(row: Row, option: str) -> Options:
    return {key: value for key, value in row.model.items() if key != option}


def _overview(block: Block, colours: Colours) -> Figure:
    """On the left every codelength, on the right its difference to the control's; a line per model."""
    rows = block.rows[:MAX_ROWS]
    names = [wrapped(row.label, 3.0) for row in rows]
    lines = sum(name.count("\n") for name in names)
    figure = Figure(figsize=(9.5, 2.0 + 0.55 * len(rows) + 0.2 * lines), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for i, eraser in enumerate(block.erasers):
        offset = 0.6 * ((i + 0.5) / len(block.erasers) - 0.5)
        for ax, points in zip(axes, (_codelengths, _increases), strict=True):
            for place, middle, half, whole in points(rows, eraser, rows.index):
                ax.errorbar(
                    middle, place + offset, xerr=half, fmt="o", markersize=5, color=colours[eraser], elinewidth=1.2,
                    markerfacecolor=colours[eraser] if whole else "white", label=eraser,
                )  # fmt: skip
    _, right = axes
    right.axvline(0, color="#999999", linewidth=1, linestyle=(0, (4, 3)))
    right.set_yticks(range(len(rows)), names)
    right.set_ylim(len(rows) - 0.5, -0.5)
    axes[0].set(xlabel="codelength ± std\n(bits per label)")
    axes[0].set_xlim(0, 1.03 * axes[0].get_xlim()[1])
    right.set(xlabel="increase over control ± s.e.\n(bits per label)")
    for ax in axes:
        ax.grid(axis="y", visible=False)
    shared_legend(figure, list(axes))
    return figure


def _learning_curves(rows: Sequence[Row]) -> Figure:
    """As a sweep draws them, of what has finished."""
    rows = rows[: MAX_PANELS - 1]
    cells = {row.label: {e.eraser: e.result for e in row.run if isinstance(e.result, MdlResult)} for row in rows}
    columns = list(dict.fromkeys(eraser for own in cells.values() for eraser in own))
    figure = Figure(figsize=panel_size(len(rows) + 1), layout="constrained")
    draw_in(figure, Grid(list(cells), columns, cells))
    return figure


def _scaling(panels: Mapping[str, list[Row]], option: str, colours: Colours, block: Block) -> Figure:
    """Above, codelengths; below, their differences to the control; a column per panel; hollow where not `sound`.

    Over width, dashed and dotted lines are those of infinite width.
    """

    def size(row: Row) -> int:
        return row.model[option]

    shown = list(panels.items())[:MAX_PANELS]
    figure = Figure(figsize=(max(5.0, 3.4 * len(shown)), 6.6), layout="constrained")
    axes = figure.subplots(2, len(shown), squeeze=False, sharex="col", sharey="row")
    for column, (title, rows) in enumerate(shown):
        erasers = sorted({entry.eraser for row in rows for entry in row.run}, key=list(colours).index)
        for eraser in erasers:
            line = colours[eraser]
            _band(axes[0, column], list(_codelengths(rows, eraser, size)), line, eraser)
            if eraser != "control":
                _band(axes[1, column], list(_increases(rows, eraser, size)), line, eraser)
        for row in infinite_width(block, rows) if option == "width" else ():
            _limit(axes[0, column], _codelengths, row, colours)
            _limit(axes[1, column], _increases, row, colours)
        axes[1, column].axhline(0, color="#999999", linewidth=1, linestyle=(0, (4, 3)))
        axes[0, column].set_title(wrapped(title, 3.0))
        axes[1, column].set_xlabel({"width": "width (units or channels)", "depth": "depth (layers or blocks)"}[option])
        _log2_axis(axes[1, column], [size(row) for row in rows])
    axes[0, 0].set_ylabel("codelength ± std\n(bits per label)")
    axes[1, 0].set_ylabel("increase over control ± s.e.\n(bits per label)")
    shared_legend(figure, list(axes.flat))
    return figure


Point = tuple[int, float, float, bool]  # x, middle, half a band, whole


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


def _loss_figure(rows: Sequence[Row], colours: Colours) -> Figure:
    """Validation loss over epochs on the whole dataset, a panel per model and size."""
    rows = rows[:MAX_PANELS]
    figure = Figure(figsize=panel_size(len(rows)), layout="constrained")
    axes = panels(figure, len(rows))
    for ax, row in zip(axes, rows, strict=True):
        for entry in row.run:
            label, style = (f"{entry.eraser} ({entry.lacks})", "--") if entry.lacks else (entry.eraser, "-")
            curves, width = [*entry.cell.curves.values()], line_width(entry.eraser, list(colours))
            loss_lines(ax, curves, "validation_bits", colours[entry.eraser], width, label, style)
        chance_line(ax, math.log2(next(e.result.num_classes for e in row.run if e.result)), "uniform code")
        ax.set_title(wrapped(row.label, 4.0), fontsize=10)
        ax.set(xlabel="epoch", ylabel="validation loss (bits per label)")
        epoch_axis(ax, max(curve.epochs[-1] for entry in row.run for curve in entry.cell.curves.values()))
    shared_legend(figure, axes)
    return figure
