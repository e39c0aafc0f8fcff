"""Figures of a report: learning curves, codelengths over width and depth, loss curves."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from harness.figures import figure_at, shared_legend, wrapped
from harness.results.arrange import Comparison, model_of
from harness.results.entries import Entry
from harness.results.run_labels import Label, labels
from mdl.figure import draw as draw_learning_curves
from scripts.report.write import Drawing
from train.figure import draw as draw_loss_curves

Colours = Mapping[Label, str]
Panel = tuple[str, list[Entry]]  # a title, and what it shows

MAX_PANELS = 6  # of one figure; more would be too small to print
_AXES = {"width": "width (units or channels)", "depth": "depth (layers or comparisons)"}


def drawings_of(comparison: Comparison, colours: Colours) -> list[Drawing]:
    """Return the figures that the runs of a comparison allow, those of a sweep among them."""
    rows = [[entry for entry in entries if entry["runs"]] for entries in comparison.rows.values()]
    coded = [row for row in rows if row and comparison.command == "mdl"]
    with_curves = [row for row in rows if any(entry["curves"] for entry in row)]

    def of_rows(draw: Callable[..., Path], rows: Sequence[Sequence[Entry]], path: Path) -> Path:
        entries = [entry for row in rows for entry in row]
        return draw(replace(comparison, entries=entries, erasers=[*colours]), path)

    drawings = _in_parts(comparison, "learning curves", coded, MAX_PANELS - 1, partial(of_rows, draw_learning_curves))
    for option in ("width", "depth"):
        sizes = scaling_panels([entry for row in coded for entry in row], option)
        drawings += _in_parts(comparison, f"over {option}", sizes, MAX_PANELS, partial(_draw_scaling, colours, option))
    losses = partial(of_rows, partial(draw_loss_curves, training=False))
    return drawings + _in_parts(comparison, "loss curves", with_curves, MAX_PANELS, losses)


def _in_parts(
    comparison: Comparison, title: str, shown: Sequence[Any], most: int, draw: Callable[[Sequence[Any], Path], Path]
) -> list[Drawing]:
    """Split what has no room in one figure over several."""
    parts = [shown[i : i + most] for i in range(0, len(shown), most)]
    titles = [title, *(f"{title} {i + 2}" for i in range(len(parts) - 1))]
    return [Drawing(f"{comparison.name}-{t}", t, partial(draw, part)) for t, part in zip(titles, parts, strict=False)]


def scaling_panels(entries: Sequence[Entry], option: str) -> list[Panel]:
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


def _draw_scaling(colours: Colours, option: str, shown: Sequence[Panel], path: Path) -> Path:
    """Draw codelengths and their differences to the control over a size to `path`, hollow where unsound."""
    compared = any(entry["code_difference"] for _, entries in shown for entry in entries)
    measures = {"codelength ± std\n(bits per label)": _codelength}
    measures |= {"increase over control ± s.e.\n(bits per label)": _increase} if compared else {}
    with figure_at(path, max(5.0, 3.4 * len(shown)), 1.0 + 2.8 * len(measures)) as figure:
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
            column[-1].set_xlabel(_AXES[option])
            _log2_axis(column[-1], sizes)
        for ax, label in zip(axes[:, 0], measures, strict=True):
            ax.set_ylabel(label)
        shared_legend(figure, list(axes.flat))
    return path


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
