"""The report's figures: codelengths, also over width and depth, what erasure adds to them, loss curves."""

import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from conf.groups import keys as read_keys
from harness.columns import code_bits
from harness.labels import labels
from harness.loss_curves import LossCurve
from harness.style import chance_line, epoch_axis, shared_legend, wrapped
from scripts.report.drawing import MAX_PANELS, Colours, Drawing
from scripts.report.groups import Block, Cell, Row
from scripts.report.read import KNOWN

MAX_ROWS = 24  # models in an overview
MAX_FIGURES = 8  # of one kind; a figure takes a second

keys = functools.cache(read_keys)


def block_drawings(blocks: Sequence[Block], colours: Colours) -> tuple[list[Drawing], list[str]]:
    """What the runs allow, and a line on each figure that is left out."""
    scaled = [(b, o, p) for b in blocks if b.verb == "mdl" for o in ("width", "depth") if (p := scaling_panels(b, o))]
    whole = [(block, model, rows) for block in blocks for model, rows in _with_curves(block).items()]
    jobs = []
    coded = [block for block in blocks if block.verb == "mdl"]
    for block in coded[:MAX_FIGURES]:
        names = [row.label for row in block.rows[MAX_ROWS:]]
        jobs.append(Drawing(f"{block.name}-codelengths", names, lambda b=block: _overview(b, colours)))
    for block, option, panels in scaled[:MAX_FIGURES]:
        name = f"{block.name}-over-{option}"
        jobs.append(Drawing(name, list(panels)[MAX_PANELS:], lambda o=option, p=panels: _scaling(p, o, colours)))
    for block, model, rows in whole[:MAX_FIGURES]:
        names = [row.label for row in rows[MAX_PANELS:]]
        name = f"{block.name}-{model}-loss-curves"
        jobs.append(Drawing(name, names, lambda b=block, r=rows: _loss_figure(b, r, colours)))
    left_out = [f"figure {block.name}-codelengths: left out" for block in coded[MAX_FIGURES:]]
    left_out += [f"figure {b.name}-over-{o}: left out" for b, o, _ in scaled[MAX_FIGURES:]]
    left_out += [f"figure {block.name}-{model}-loss-curves: left out" for block, model, _ in whole[MAX_FIGURES:]]
    return jobs, left_out + [line for block in blocks for line in _not_drawn(block)]


def _not_drawn(block: Block) -> Iterator[str]:
    """A line on the points and curves that figures of a block have no numbers for."""
    cells = [(row, cell) for row in block.rows for cell in row.cells.values() if cell.runs]
    alone = [f"{row.label}, {cell.eraser}" for row, cell in cells if block.verb == "mdl" and not row.compared(cell)]
    bare = [f"{row.label}, {cell.eraser}" for row, cell in cells if not set(cell.seeds) <= set(cell.curves)]
    for what, which in (("increase over control, no control with its seeds", alone), ("loss curve of all seeds", bare)):
        if which:
            more = f" and {len(which) - 3} more" if len(which) > 3 else ""
            yield f"figures of {block.name}: without {what}: {'; '.join(which[:3])}{more}"


def _with_curves(block: Block) -> dict[str, list[Row]]:
    """Rows with loss curves by model; those of the base width or depth first, then by size."""
    found: dict[str, list[Row]] = {}
    for row in block.rows:
        if any(cell.curves for cell in row.cells.values()):
            found.setdefault(row.config["model"]["name"], []).append(row)
    return {model: sorted(rows, key=lambda row: len(_unlike_base(row))) for model, rows in found.items()}


def _unlike_base(row: Row) -> set[str]:
    """Numbers and options of the model that are not its YAML's."""
    model = row.config["model"]
    base = keys("model", model["name"]) if model["name"] in KNOWN["model"] else {}
    return {key for key in base if key in model and model[key] != base[key]}


def scaling_panels(block: Block, option: str) -> dict[str, list[Row]]:
    """Rows that differ in one number of the model only, at least two of them; by title, the base sizes first."""
    panels: dict[str, list[Row]] = {}
    for row in block.rows:
        if isinstance(row.config["model"].get(option), int):
            panels.setdefault(json.dumps(_without(row, option), sort_keys=True), []).append(row)
    several = (rows for rows in panels.values() if len(rows) > 1)
    kept = sorted(several, key=lambda rows: (len(_unlike_base(rows[0]) - {option, "activation"}), -len(rows)))
    titles = [_title(rows[0].config["model"], option) for rows in kept]
    if len(set(titles)) < len(titles):  # they differ in something else
        titles = labels([{"model": _without(rows[0], option)} for rows in kept], ("model",))
    by_size = (sorted(rows, key=lambda row: row.config["model"][option]) for rows in kept)
    return dict(zip(titles, by_size, strict=True))


def _title(model: Mapping[str, Any], option: str) -> str:
    fixed = [f"{k}={model[k]}" for k in ("width", "depth") if k in model and k != option]
    return ", ".join([model["name"], *([model["activation"]] if "activation" in model else []), *fixed])


def _without(row: Row, option: str) -> dict[str, Any]:
    return {key: value for key, value in row.config["model"].items() if key != option}


def _overview(block: Block, colours: Colours) -> Figure:
    """On the left every codelength, on the right its difference to the control's; a line per model."""
    rows = block.rows[:MAX_ROWS]
    names = [wrapped(row.label, 3.0) for row in rows]
    lines = sum(name.count("\n") for name in names)
    figure = Figure(figsize=(9.5, 2.0 + 0.55 * len(rows) + 0.2 * lines), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for i, eraser in enumerate(block.erasers):
        offset = 0.6 * ((i + 0.5) / len(block.erasers) - 0.5)
        of_rows: Sequence[Callable[[], Iterator[Point]]] = (
            lambda e=eraser: _codelengths(rows, e, lambda row: rows.index(row)),
            lambda e=eraser: _increases(rows, e, lambda row: rows.index(row)),
        )
        for ax, points in zip(axes, of_rows, strict=True):
            for place, middle, half, whole in points():
                ax.errorbar(
                    middle, place + offset, xerr=half, fmt="o", markersize=5, color=colours[eraser], elinewidth=1.2,
                    markerfacecolor=colours[eraser] if whole else "white", label=eraser,
                )  # fmt: skip
    _, right = axes
    right.axvline(0, color="#999999", linewidth=1, linestyle=(0, (4, 3)))
    right.set_yticks(range(len(rows)), names)
    right.set_ylim(len(rows) - 0.5, -0.5)
    axes[0].set(xlabel="codelength ± std\n(bits per label)")
    axes[0].set_xlim(left=0)
    right.set(xlabel="increase over control ± s.e.\n(bits per label)")
    for ax in axes:
        ax.grid(axis="y", visible=False)
    shared_legend(figure, list(axes))
    return figure


def _scaling(panels: Mapping[str, list[Row]], option: str, colours: Colours) -> Figure:
    """Above, codelengths; below, their differences to the control; a column per panel; hollow where not `Row.sound`."""

    def size(row: Row) -> int:
        return row.config["model"][option]

    shown = list(panels.items())[:MAX_PANELS]
    figure = Figure(figsize=(max(5.0, 3.4 * len(shown)), 6.6), layout="constrained")
    axes = figure.subplots(2, len(shown), squeeze=False, sharex="col", sharey="row")
    for column, (title, rows) in enumerate(shown):
        erasers = sorted({e for row in rows for e in row.cells}, key=list(colours).index)
        for eraser in erasers:
            line = colours[eraser]
            _band(axes[0, column], list(_codelengths(rows, eraser, size)), line, eraser)
            if eraser != "control":
                _band(axes[1, column], list(_increases(rows, eraser, size)), line, eraser)
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
        spread = row.cells[eraser].spread() if eraser in row.cells else None
        if spread:
            yield x(row), spread.mean, spread.std or 0.0, row.sound(eraser)


def _increases(rows: Sequence[Row], eraser: str, x: Callable[[Row], int]) -> Iterator[Point]:
    for row in rows:
        found = row.difference(eraser, code_bits)
        if found:
            whole = row.sound(eraser) and row.sound("control")
            yield x(row), found.mean, found.standard_error or 0.0, whole


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
    kept = ticks[:: max(1, math.ceil(len(ticks) / 6))]
    ax.set_xscale("log", base=2)
    ax.set_xticks(kept, [f"{value:,}" for value in kept])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.minorticks_off()


def _loss_figure(block: Block, rows: Sequence[Row], colours: Colours) -> Figure:
    """Validation loss over epochs on the whole dataset, a panel per model and size."""
    rows = rows[:MAX_PANELS]
    wide = min(3, len(rows))
    figure = Figure(figsize=(max(5.0, 4.3 * wide), 3.5 * math.ceil(len(rows) / wide) + 0.5), layout="constrained")
    axes = [figure.add_subplot(math.ceil(len(rows) / wide), wide, i + 1) for i in range(len(rows))]
    for ax, row in zip(axes, rows, strict=True):
        for eraser in (e for e in block.erasers if e in row.cells):
            _loss_curves(ax, row.cells[eraser], colours[eraser], row.lacks(eraser))
        chance_line(ax, math.log2(_classes(row)), "uniform code")
        ax.set_title(wrapped(row.label, 4.0), fontsize=10)
        ax.set(xlabel="epoch", ylabel="validation loss (bits per label)")
        epoch_axis(ax, max(curve.epochs[-1] for cell in row.cells.values() for curve in cell.curves.values()))
    shared_legend(figure, axes)
    return figure


def _classes(row: Row) -> int:
    return next(cell.result.num_classes for cell in row.cells.values() if cell.result)


def _loss_curves(ax: Axes, cell: Cell, line: str, lacks: str) -> None:
    for curve in cell.curves.values():
        ax.plot(curve.epochs, curve.validation_bits, color=line, linewidth=0.6, alpha=0.35)
    epochs, middle, _ = mean_curve([*cell.curves.values()])
    label = f"{cell.eraser} ({lacks})" if lacks else cell.eraser
    ax.plot(epochs, middle, color=line, linewidth=1.9, linestyle="--" if lacks else "-", label=label)


def mean_curve(curves: Sequence[LossCurve]) -> tuple[list[float], list[float], list[float]]:
    """Epochs, mean and standard deviation of the validation loss, as long as all seeds train; [] without curves."""
    if not curves:
        return [], [], []
    shortest = min(len(curve.epochs) for curve in curves)
    bits = np.array([curve.validation_bits[:shortest] for curve in curves])
    std = bits.std(0, ddof=1) if len(bits) > 1 else np.zeros(shortest)
    return curves[0].epochs[:shortest].tolist(), bits.mean(0).tolist(), std.tolist()
