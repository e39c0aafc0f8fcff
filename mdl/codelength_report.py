"""Codelengths of finished runs: table, learning curves, costs of erasure, and codelength over width or depth."""

import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, StrMethodFormatter

from conf import Options
from harness.figure_helpers import band, chance_line, figure_of_panels, line_style, name_lines, note_below, wrapped
from harness.results.arrange import finished_rows, panels_of, rows_of, with_values
from harness.results.columns import Column, Row, difference, first, members_of, runs_of, spread, values
from harness.results.figures import Colours, Drawing, Panel, Section, line_width, sections_of_tables
from harness.results.read import Note
from harness.results.run_labels import labels
from harness.results.run_settings import model_of_row
from harness.results.table import Table
from harness.statistics import Difference, Spread, compression, seeds_text, signed
from mdl.result import MdlResult
from mdl.training_sizes import few_labels
from train import final_losses_report
from train.final_losses_report import results_of


def _values(row: Row, control: Row | None) -> dict[str, Any]:
    """Return a row's compression, and what its learning curves say against its control's test losses, ε."""
    bits, members = values(row, "bits_per_label"), members_of(row)
    of_control = {} if control is None else members_of(control)
    epsilon = {seed: result.final.loss_bits[s] for seed, (result, s) in of_control.items()}
    found: dict[str, Any] = {"compression": None, "surplus_bits": None, "sample_complexity": None}
    if bits and any(bits):
        found["compression"] = compression(bits, first(row, "num_classes"))
    if bits and epsilon.keys() >= members.keys():  # docs/codes.md
        surplus = [result.surplus_bits(s, epsilon[seed]) for seed, (result, s) in members.items()]
        size = max(result.sample_complexity(s, epsilon[seed]) for seed, (result, s) in members.items())
        found["surplus_bits"] = pd.Series(surplus, row["seed"].dropna().index)
        found["sample_complexity"] = f"> {max(values(row, 'train_size'))}" if size == math.inf else size
    return found


_CODELENGTHS = (
    spread(
        "bits per label", "bits_per_label", ".3f", "prequential codelength; a model at chance needs log2 k",
        trainings=("coding",),
    ),
    difference("Δ to control", "bits_per_label", "of the codelength", trainings=("coding",)),
    spread(
        "calibrated", "calibrated_bits_per_label", ".3f",
        "the codelength by logits divided by a temperature for each training size, fitted on the validation split",
        trainings=("coding",),
    ),
    spread(
        "excess (bits)", "excess_bits", ",.0f",
        "codelength of all labels less N times the test loss (docs/codes.md)", trainings=("coding", "final"),
    ),
    spread(
        "surplus (bits)", "surplus_bits", ",.0f", "above the control's test loss, of all labels",
        trainings=("coding", "final"),
    ),
    Column(
        "sample complexity", "sample_complexity", "",
        "training size from which new labels cost no more than the control's test loss, the largest over seeds",
        trainings=("coding", "final"),
    ),
    spread("area (bits)", "area_bits", ",.0f", "of labels, above the last block's", trainings=("coding",)),
    spread(
        "Table 16's unit", "published_units", ".3f",
        "Σ n_{i+1}·CE_i / N, the unit of the paper's Table 16 (not a codelength)", trainings=("coding",),
    ),
)  # fmt: skip
_COMPRESSION = Column(  # the CSV contains it only if the table shows it
    "compression", "compression", ".2f", "codelength of the uniform code divided by this one's", trainings=("coding",)
)
COLUMNS = {column.name: column for column in (*_CODELENGTHS, _COMPRESSION)} | final_losses_report.COLUMNS
_UNEQUAL_BITS = 0.005  # smallest log2 k - label entropy for which a table gives both
_USUAL = ("bits_per_label", "bits_per_label_difference", "test_loss_bits", "accuracy")


def table_of(frame: pd.DataFrame, names: Sequence[str] = ()) -> Table:
    """Tabulate codelengths and networks trained on everything, one row per model and eraser.

    Args:
        frame: the runs of a table (`harness.results.arrange`).
        names: columns of `COLUMNS` to show; the usual ones by default.
    """
    measured, csv = with_values(frame, _values), (*_CODELENGTHS, *final_losses_report.FINALS)
    return final_losses_report.table_of(measured, names or _USUAL, COLUMNS, csv, _notes)


def _notes(rows: Sequence[Row]) -> list[str]:
    """Return notes on the cost of the uniform and entropy codes, on few labels, and on few training sizes."""
    coded = [row for row in rows if values(row, "bits_per_label")]
    entropies = {(first(row, "num_classes"), bits) for row in coded for bits in values(row, "label_entropy_bits")}
    notes = [
        f"log2 k is {math.log2(k):.3f} bits, the label entropy {bits:.3f}: what a label costs once the classes' shares "
        "are known."
        for k, bits in sorted(entropies)
        if math.log2(k) - bits >= _UNEQUAL_BITS
    ]
    for result in results_of(rows):
        code = result.config.get("mdl", {}).get("code", "blocks")
        if isinstance(result, MdlResult) and code == "blocks" and any(result.curve[0].epochs):  # kernels have no epochs
            said = few_labels(result.sizes, result.num_classes)
            notes += [f"Few labels: {said}."] if said else []
    if ("mdl", "quick") in final_losses_report.presets_of(rows):
        notes.append("mdl=quick has three training sizes: codelengths come out too long.")
    return notes


def figures_of(frame: pd.DataFrame) -> dict[str, Drawing]:
    """Return the figures by caption, without those that have no panels."""
    finished = finished_rows(rows_of(frame))
    drawn: dict[str, Drawing] = {
        "learning curves": (draw_learning_curves, panels_of(frame)),
        **{
            f"over {size}": (partial(draw_scaling, size), scaling_panels(finished, size)) for size in ("width", "depth")
        },
        **final_losses_report.figures_of(frame),
    }
    return {caption: figure for caption, figure in drawn.items() if figure[1]}


def sections(frames: Sequence[pd.DataFrame], names: Sequence[str], _: Note) -> list[Section]:
    """Return the sections of a report; `names` chooses columns of `COLUMNS`, by default the usual ones."""
    return sections_of_tables(frames, partial(table_of, names=names), figures_of)


def draw_learning_curves(shown: Sequence[Panel], colours: Colours, path: Path) -> Path:
    """Draw the loss on the next chunk over training size in one panel per model, and bars of differences to control."""
    compared = [(title, of) for title, entries in shown if (of := [*filter(_difference, entries)])]
    slots = sum(len(of) + (len(shown) > 1) for _, of in compared)
    last_row = 1.1 + 0.26 * slots if compared else 3.7
    with figure_of_panels(path, len(shown) + bool(compared), last_row) as (figure, axes):
        for (title, entries), ax in zip(shown, axes, strict=False):
            sizes: list[int] = []
            for entry in entries:
                members, eraser = [*members_of(entry).values()], first(entry, "eraser")
                sizes = [point.n for point in members[0][0].coding]
                losses = [[point.ce_next_bits[s] for point in result.coding] for result, s in members]
                width = line_width(colours, eraser)
                style = {"marker": "o", "markersize": 2 + width, "linewidth": width}
                band(ax, sizes, losses, color=colours[eraser], label=eraser.display, **style)
            chance_line(ax, math.log2(first(entries[0], "num_classes")), "uniform code")
            _size_axis(ax, sizes)
            ax.set_title(wrapped(title, 4.0))
            ax.set(xlabel="training examples", ylabel="loss on the next chunk\n(bits per label)")
        name_lines(figure, axes[: len(shown)])
        if compared:
            _draw_differences(axes[-1], compared, colours, name_models=len(shown) > 1)
            counts = sorted({of.seeds for _, entries in compared for of in map(_difference, entries) if of} - {1})
            if counts:
                note_below(figure, f"Cost of erasure: ± standard error, {' or '.join(map(seeds_text, counts))}.")
    return path


def _difference(entry: Row) -> Difference | None:
    return first(entry, "bits_per_label_difference")


def _draw_differences(ax: Axes, compared: Sequence[Panel], colours: Colours, *, name_models: bool) -> None:
    """Draw bars of paired differences to the control, with names on the axis and values to the right of the panel."""
    names: list[str] = []
    headings: list[int] = []
    for title, entries in compared:
        if name_models:
            headings.append(len(names))
            names.append(wrapped(title, 1.8))
        for entry in entries:
            if (to_control := _difference(entry)) is None:
                continue
            y, error, eraser = len(names), to_control.standard_error, first(entry, "eraser")
            look = {"color": colours[eraser], "capsize": 3, "ecolor": "#333333"}
            ax.barh(y, to_control.mean, 0.8, xerr=error or None, **look)
            text = signed(to_control.mean) + (", one seed" if error is None else f" ± {error:.3f}")
            beside = ax.get_yaxis_transform()
            ax.text(1.02, y, text, transform=beside, va="center", fontsize=9, color="#333333")
            names.append(wrapped(eraser.display, 1.8))
    ax.axvline(0, color="#333333", linewidth=1)
    ax.set_yticks(range(len(names)), names, fontsize=10)
    ax.tick_params(axis="y", length=0)
    for i in headings:
        ax.get_yticklabels()[i].set_fontweight("bold")
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    ax.locator_params(axis="x", nbins=5)  # so that labels do not touch
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
    ax.set(title="cost of erasure", xlabel="codelength minus control (bits per label)")


def _size_axis(ax: Axes, sizes: Sequence[int]) -> None:
    """Make the axis logarithmic, with ticks at the sizes or at every second, third, ... of them."""
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator(sizes, nbins=4))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ax.minorticks_off()


def scaling_panels(entries: Sequence[Row], option: str) -> list[Panel]:
    """Group entries whose models differ only in `option`; keep groups with at least two models, titled by the rest."""
    by_shared: dict[str, tuple[Options, list[Row]]] = {}
    for entry in entries:
        row = model_of_row(runs_of(entry)[0].config, runs_of(entry)[0].command)
        if isinstance(row["model"].get(option), int) and row["model"][option] > 0:
            shared = row | {"model": {key: value for key, value in row["model"].items() if key != option}}
            by_shared.setdefault(json.dumps(shared, sort_keys=True), (shared, []))[1].append(entry)
    several = [(shared, of) for shared, of in by_shared.values() if len({first(entry, "model") for entry in of}) > 1]
    titles = labels([shared for shared, _ in several], ("model",), of_rows=True)
    return [(title.display, of) for title, (_, of) in zip(titles, several, strict=True)]


def draw_scaling(option: str, shown: Sequence[Panel], colours: Colours, path: Path) -> Path:
    """Draw codelengths, and their increase over the control, against `option`; unsound points are hollow."""
    measures = {"codelength ± std": _codelength}
    if any(_difference(entry) for _, entries in shown for entry in entries):
        measures["increase over control ± s.e."] = _increase
    drawn = [(*panel, measure) for panel in shown for measure in measures.items()]
    with figure_of_panels(path, len(drawn)) as (figure, axes):
        for (title, entries, (label, measure)), ax in zip(drawn, axes, strict=True):
            sizes = [runs_of(entry)[0].config["model"][option] for entry in entries]
            unsound = {first(one, "model") for one in entries if first(one, "is_control") and not is_sound(one)}
            for eraser in sorted({first(entry, "eraser") for entry in entries}, key=[*colours].index):
                points = sorted(
                    (size, *numbers, is_sound(one) and (measure is _codelength or first(one, "model") not in unsound))
                    for size, one in zip(sizes, entries, strict=True)
                    if first(one, "eraser") == eraser and (numbers := measure(one))
                )
                look: Any = {"color": colours[eraser], "markersize": 5}
                if points:
                    x, middle, error, _ = zip(*points, strict=True)
                    style = {"marker": "o", "linestyle": line_style(x), "capsize": 3}
                    ax.errorbar(x, middle, error, label=eraser.display, **style, **look)
                hollow = [(x, middle) for x, middle, _, sound in points if not sound]
                ax.plot(*(zip(*hollow, strict=True) if hollow else ([], [])), "o", markerfacecolor="white", **look)
            ax.set_title(wrapped(title, 3.0))
            if measure is _increase:  # erasure backfires below zero
                ax.axhline(0, color="#999999", linewidth=1, linestyle=(0, (4, 3)))
            ax.set(xlabel=option, ylabel=f"{label}\n(bits per label)")
            _size_axis(ax, sorted(set(sizes)))
        name_lines(figure, axes)
    return path


def _codelength(entry: Row) -> tuple[float, float] | None:
    over = Spread.of(values(entry, "bits_per_label"))
    return over.mean, over.std or 0.0


def _increase(entry: Row) -> tuple[float, float] | None:
    to_control = _difference(entry)
    return None if to_control is None else (to_control.mean, to_control.standard_error or 0.0)


def is_sound(entry: Row) -> bool:
    """Return whether the codelength has every seed, and all its trainings left the plateau."""
    return not first(entry, "incomplete") and not any(values(entry, "coding_on_plateau"))
