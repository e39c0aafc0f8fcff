"""Figures of a report as files, SVG and PDF: what there is to draw, loss and learning curves, what they lack."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from harness.results.arrange import Comparison, Row
from harness.results.output import file_name
from harness.results.panels import loss_lines, panel_size, panels
from harness.style import STYLE, chance_line, epoch_axis, line_width, save, shared_legend, wrapped
from mdl.figure import draw_in
from scripts.report.codelengths import Colours, overview, scaling, scaling_panels, unlike_base
from scripts.report.files import file_in

MAX_PANELS = 6  # of one figure; more would be too small to print
MAX_ROWS = 24  # models in an overview
MAX_FIGURES = 12  # of a series; a figure takes a second
Note = Callable[[str], object]  # takes a line on what is left out


@dataclass(frozen=True)
class Drawing:
    """A figure to draw: the name of its files, what it has no room for, and how."""

    name: str
    hidden: Sequence[str]
    draw: Callable[[], Figure]


def at_most(most: int, drawings: Sequence[Drawing], note: Note) -> Sequence[Drawing]:
    """Return the first of a series; there may be as many as runs."""
    if left := drawings[most:]:
        more = f", and {len(left) - 1} more of its series" if len(left) > 1 else ""
        note(f"figure {left[0].name}: left out{more}")
    return drawings[:most]


def draw_figures(
    drawings: Sequence[Drawing], directory: Path, note: Note, progress: Callable[[int, int], None] = lambda *_: None
) -> list[Path]:
    """Draw to `figures/<name>.svg` and `.pdf`; notes what a figure lacks, and a figure that cannot be drawn."""
    paths = []
    for i, drawing in enumerate(drawings):
        progress(i, len(drawings))
        if drawing.hidden:
            lacking = f"without {len(drawing.hidden)} of its panels or rows; report on fewer runs for these"
            note(f"figure {drawing.name}: {lacking}")
        path = file_in(directory, "figures", f"{file_name(drawing.name)}.svg")
        path = path if path not in paths else path.with_stem(f"{path.stem}-{i}")
        try:
            with mpl.rc_context(STYLE):
                save(drawing.draw(), path, dpi=150, crop=False)
        except OSError:
            raise
        except Exception as error:  # a run may be anybody's: the rest is shown all the same
            note(f"figure {drawing.name}: cannot be drawn ({type(error).__name__}: {error})")
        else:
            paths += [path, path.with_suffix(".pdf")]
    return paths


def comparison_drawings(comparisons: Sequence[Comparison], colours: Colours, note: Note) -> list[Drawing]:
    """Return the figures that the runs allow; note what is left out."""
    coded = [
        comparison
        for comparison in comparisons
        if comparison.command == "mdl" and any(row.run for row in comparison.rows)
    ]
    overviews = [_drawing(f"{b.name}-codelengths", b.rows, MAX_ROWS, overview, b.erasers, colours) for b in coded]
    curves = [
        _drawing(f"{b.name}-learning-curves", rows, MAX_PANELS - 1, _learning_curves, colours)
        for b in coded
        if (rows := [row for row in b.rows if row.run])
    ]
    scalings = [
        Drawing(
            f"{comparison.name}-over-{option}",
            list(panels)[MAX_PANELS:],
            functools.partial(scaling, dict(list(panels.items())[:MAX_PANELS]), option, colours, comparison),
        )
        for comparison in coded
        for option in ("width", "depth")
        if (panels := scaling_panels(comparison, option))
    ]
    curved = [
        (comparison, model, rows) for comparison in comparisons for model, rows in _with_curves(comparison).items()
    ]
    curved.sort(key=lambda found: -sum(bool(entry.curves) for row in found[2] for entry in row.run))
    losses = [
        _drawing(f"{comparison.name}-{model}-loss-curves", rows, MAX_PANELS, _loss_figure, colours)
        for comparison, model, rows in curved  # what compares most comes first
    ]
    series = (overviews, scalings, curves, losses)
    drawings = [drawing for each in series for drawing in at_most(MAX_FIGURES, each, note)]
    for comparison in comparisons:
        _note_gaps(comparison, note)
    return drawings


def _drawing(name: str, rows: Sequence[Row], most: int, draw: Callable[..., Figure], *arguments: object) -> Drawing:
    """Return a drawing of the first rows."""
    return Drawing(name, [str(row.label) for row in rows[most:]], functools.partial(draw, rows[:most], *arguments))


def _note_gaps(comparison: Comparison, note: Note) -> None:
    """Note the points and curves that figures of a comparison have no numbers for."""
    entries = [entry for row in comparison.rows for entry in row.run]
    coded = comparison.command == "mdl"
    alone = [f"{e.row}, {e.eraser}" for e in entries if coded and e.code_difference is None and not e.is_control]
    bare = [f"{e.row}, {e.eraser}" for e in entries if e.result and not set(e.result.seeds) <= set(e.curves)]
    for what, which in (("increase over control, no control with its seeds", alone), ("loss curve of all seeds", bare)):
        if which:
            more = f" and {len(which) - 3} more" if len(which) > 3 else ""
            note(f"figures of {comparison.name}: without {what}: {'; '.join(which[:3])}{more}")


def _with_curves(comparison: Comparison) -> dict[str, list[Row]]:
    """Rows with loss curves by model; those of the base width or depth first, then by size."""
    found: dict[str, list[Row]] = {}
    for row in comparison.rows:
        if any(entry.curves for entry in row.run):
            found.setdefault(row.model["name"], []).append(row)
    return {model: sorted(rows, key=lambda row: len(unlike_base(row))) for model, rows in found.items()}


def _learning_curves(rows: Sequence[Row], colours: Colours) -> Figure:
    """Draw what has finished as a sweep draws it."""
    figure = Figure(figsize=panel_size(len(rows) + 1), layout="constrained")
    draw_in(figure, rows, list(colours))
    return figure


def _loss_figure(rows: Sequence[Row], colours: Colours) -> Figure:
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
