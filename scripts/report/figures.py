"""Figures of a report: learning curves, codelengths over width and depth, loss curves."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from harness.figure_style import shared_legend, wrapped
from harness.results.arrange import Comparison, model_of
from harness.results.entries import Entry
from harness.results.panels import panel_size
from harness.results.run_labels import Label, labels
from mdl.figure import draw_in as draw_learning_curves
from scripts.report.write import Drawing
from train.summary import draw_in as draw_loss_curves

Colours = Mapping[Label, str]
Row = tuple[Label, Sequence[Entry]]

MAX_PANELS = 6  # of one figure; more would be too small to print


def drawings_of(comparison: Comparison, colours: Colours) -> list[Drawing]:
    """Return the figures that the runs of a comparison allow."""
    rows = [(label, [entry for entry in entries if entry["runs"]]) for label, entries in comparison.rows.items()]
    coded = [row for row in rows if row[1] and comparison.command == "mdl"]
    with_curves = [row for row in rows if any(entry["curves"] for entry in row[1])]
    drawings = _in_parts(comparison, "learning curves", coded, MAX_PANELS - 1, partial(_learning_curves, colours))
    for option in ("width", "depth"):
        sizes = scaling_panels([entry for _, entries in coded for entry in entries], option)
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
    draw_learning_curves(figure, dict(rows), list(colours))
    return figure


def _loss_curves(colours: Colours, rows: Sequence[Row]) -> Figure:
    """Draw validation loss over epochs on the whole dataset, a panel per model and size."""
    figure = Figure(figsize=panel_size(len(rows)), layout="constrained")
    draw_loss_curves(figure, dict(rows), list(colours), training=False)
    return figure


def scaling_panels(entries: Sequence[Entry], option: str) -> list[tuple[str, list[Entry]]]:
    """Return entries whose models differ in one number only, of two sizes at least, under what they share."""
    by_shared: dict[str, list[Entry]] = {}
    for entry in entries:
        model = model_of(entry["runs"][0].config)
        if isinstance(model.get(option), int) and model[option] > 0:
            shared = {key: value for key, value in model.items() if key != option}
            by_shared.setdefault(json.dumps(shared, sort_keys=True), []).append(entry)
    several = {shared: of for shared, of in by_shared.items() if len({entry["model"] for entry in of}) > 1}
    titles = labels([{"model": json.loads(shared)} for shared in several], ("model",))
    return [(title.display, of) for title, of in zip(titles, several.values(), strict=True)]


def _scaling(colours: Colours, option: str, shown: Sequence[tuple[str, list[Entry]]]) -> Figure:
    """Draw codelengths, and below them their differences to the control; a column per panel; hollow where unsound."""
    compared = any(entry["code_difference"] for _, entries in shown for entry in entries)
    measures = {"codelength ± std\n(bits per label)": _codelength}
    measures |= {"increase over control ± s.e.\n(bits per label)": _increase} if compared else {}
    figure = Figure(figsize=(max(5.0, 3.4 * len(shown)), 1.0 + 2.8 * len(measures)), layout="constrained")
    axes = figure.subplots(len(measures), len(shown), squeeze=False, sharex="col", sharey="row")
    for column, (title, entries) in zip(axes.T, shown, strict=True):
        sizes = [entry["runs"][0].config["model"][option] for entry in entries]
        unsound = {entry["model"] for entry in entries if entry["is_control"] and not is_sound(entry)}
        for ax, measure in zip(column, measures.values(), strict=True):
            for eraser in sorted({entry["eraser"] for entry in entries}, key=list(colours).index):
                points = sorted(
                    (size, *numbers, is_sound(entry) and (measure is _codelength or entry["model"] not in unsound))
                    for size, entry in zip(sizes, entries, strict=True)
                    if entry["eraser"] == eraser and (numbers := measure(entry)) is not None
                )
                _band(ax, points, colours[eraser], eraser.display)
        if compared:
            column[-1].axhline(0, color="#999999", linewidth=1, linestyle=(0, (4, 3)))
        column[0].set_title(wrapped(title, 3.0))
        column[-1].set_xlabel({"width": "width (units or channels)", "depth": "depth (layers or comparisons)"}[option])
        _log2_axis(column[-1], sizes)
    for ax, label in zip(axes[:, 0], measures, strict=True):
        ax.set_ylabel(label)
    shared_legend(figure, list(axes.flat))
    return figure


def is_sound(entry: Entry) -> bool:
    """Return whether the codelength has every seed, and rests on no training that never left the plateau."""
    return not entry["incomplete"] and not entry["bits_per_sample_on_plateau"]


def _codelength(entry: Entry) -> tuple[float, float] | None:
    return entry["bits_per_label_mean"], entry["bits_per_label_std"] or 0.0


def _increase(entry: Entry) -> tuple[float, float] | None:
    difference = entry["code_difference"]
    return None if difference is None else (difference.mean, difference.standard_error or 0.0)


def _band(ax: Axes, points: Sequence[tuple[int, float, float, bool]], line: str, label: str) -> None:
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
