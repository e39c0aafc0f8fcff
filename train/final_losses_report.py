"""Networks trained on everything, compared with the control: table, notes and loss curves."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, StrMethodFormatter

from erasure.certificate import Certificate
from erasure.few_examples import few_examples
from harness.figure_helpers import chance_line, figure_of_panels, name_lines, wrapped
from harness.loss_curves import DROP_WINDOW_EPOCHS, LossCurve, crossing, crossing_epoch
from harness.result import Result
from harness.result_fields import Endings
from harness.results.arrange import finished_rows, panels_of, rows_of, with_values
from harness.results.columns import (
    RUNS,
    SEEDS,
    WHO,
    Column,
    Row,
    csv_only,
    difference,
    first,
    incomplete_remarks,
    members_of,
    names_of,
    runs_of,
    seeds_of,
    spread,
    values,
    word,
)
from harness.results.figures import Colours, Drawing, Panel, Section, line_width, sections_of_tables
from harness.results.read import Note
from harness.results.run_settings import setting, whole
from harness.results.table import Table
from harness.statistics import LEVEL, Difference, deviation_over

Member = tuple[Any, int]  # a result, and the position of a seed in it
Notes = Callable[[Sequence[Row]], Sequence[str]]

_REMARKED = {"coding": "trainings", "final": "trainings on the whole split"}  # in remarks, by `Column.trainings`
_KINDS: Mapping[str, Callable[[Any], Sequence[Endings]]] = {  # trainings of a result, by kind
    "coding": lambda result: result.coding,
    "trainings": lambda result: result.trainings,
    "final": lambda result: result.trainings[-1:],
}
_HAPPENED = {
    "never_improved": "the untrained network was scored, as the validation loss never improved",
    "on_plateau": "the training loss stayed at the label entropy until training stopped: nothing is left for the "
    "network to learn, or it stopped too soon",
}
_EQUAL = 0.01  # largest relative gap of class moments that counts as equal
_DETECTED = 2  # z-score above which an order counts as detected (docs/orders.md)


_CSV_ALONE = (
    word("", "dataset"),
    *csv_only("setting"),
    *RUNS,
    *csv_only("incomplete", *(f"{kind}_on_plateau" for kind in _KINDS), "certificate.train.out_of_range", "seconds"),
    *csv_only(
        *(f"certificate.test.order_{name}_{p}" for p in (1, 2, 3, 4) for name in ("shares", "errors", "z_scores"))
    ),
)
_USUAL = ("test_loss_bits", "test_loss_bits_difference", "accuracy", "train_loss_bits", "label_entropy_bits")
FINALS = (
    spread(
        "test loss (bits)", "test_loss_bits", ".4f", "per label, of networks trained on everything",
        trainings=("final",),
    ),
    spread("accuracy (%)", "accuracy", ".1f", scale=100, trainings=("final",)),
    difference("Δ of test loss", "test_loss_bits", "to the control's", trainings=("final",)),
    Column(
        "below control", "crossing", "",
        "training size from which the test loss, and epoch from which the best validation loss so far stays below the "
        "control's; a run backfires that ends significantly below it",
        fields={}, trainings=("coding", "final"), order_by="crossing_size",
    ),
    *csv_only("crossing_size", "crossing_epoch"),
    Column(
        "sharpest fall (bits)", "sharp_drop_bits", ".2f",
        f"of the validation loss of the last training within {DROP_WINDOW_EPOCHS} epochs, and when it began; means "
        "over seeds",
        over=mean, trainings=("final",),
    ),
    Column("at epoch", "sharp_drop_epoch", ".0f", over=lambda epochs: whole(mean(epochs)), trainings=("final",)),
    spread(
        "training loss", "train_loss_bits", ".4f",
        "on the training examples without augmentation, at the lowest validation loss",
        trainings=("final",),
    ),
    spread("at the end", "end_train_loss_bits", ".4f", "training loss when training ended", trainings=("final",)),
    Column(
        "entropy", "label_entropy_bits", ".4f", "of the training labels, the best that a constant predictor can do"
    ),
    Column(
        "gap of means", "certificate.train.mean_gap", ".1g",
        "between classes, relative, as that of covariances on the training split: no promise goes further",
    ),
    Column("gap of covariances", "certificate.train.covariance_gap", ".1g"),
    Column(
        "gap of means, test", "certificate.test.mean_gap", ".1g", "the same on the test split, under the same map"
    ),
    Column("gap of covariances, test", "certificate.test.covariance_gap", ".1g"),
    Column(
        "edit (%)", "certificate.train.edit_size", ".3g",
        "share of the variance of the training examples that erasing them takes", 100,
    ),
    Column("parameters", "parameters", ","),
)  # fmt: skip

COLUMNS = {column.name: column for column in FINALS if column.heading}


def table_of(
    frame: pd.DataFrame,
    names: Sequence[str] = (),
    columns: Mapping[str, Column] = COLUMNS,
    csv: Sequence[Column] = FINALS,
    further_notes: Notes = lambda _: (),
) -> Table:
    """Tabulate networks trained on everything, one row per model and eraser.

    Args:
        frame: the runs of a table (`harness.results.arrange`).
        names: columns to show, by default the usual ones; missing and empty columns are left out.
        columns: columns that `names` may choose.
        csv: columns of the CSV, in addition to those shown.
        further_notes: function that returns further notes on finished rows.
    """
    shown = [columns[name] for name in names or _USUAL if name in columns]
    rows = rows_of(measured(frame))
    remarks = [*_training_remarks(shown, rows), *incomplete_remarks(rows)]
    notes = _notes(shown, finished_rows(rows), further_notes)
    also = (*WHO, *_CSV_ALONE, *csv)
    name, title = first(frame, "table"), first(frame, "title")
    return Table.of(name, (*WHO, *shown, SEEDS), rows, notes, also, title, remarks)


def measured(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with counts of each row's trainings and the points where losses cross the control's."""
    return with_values(frame, lambda row, control: _counts(row) | _crossings(row, control))


def _counts(row: Row) -> dict[str, str]:
    """Return, by kind of training, how many stayed on the plateau and how many kept their initial weights.

    The text is "3 of 5", or empty if there is none. Trainings whose state an earlier version did not record are left
    out.
    """
    counts = {}
    for kind, trainings_of in _KINDS.items():
        trainings = [(training, s) for result, s in members_of(row).values() for training in trainings_of(result)]
        states = {
            "on_plateau": [not one.left_plateau[s] for one, s in trainings if one.left_plateau is not None],
            "never_improved": [
                one.untrained[s] and (one.left_plateau is None or one.left_plateau[s])
                for one, s in trainings
                if one.untrained is not None
            ],
        }
        counts |= {f"{kind}_{state}": f"{sum(of)} of {len(of)}" if any(of) else "" for state, of in states.items()}
    return counts


def _crossings(row: Row, control: Row | None) -> dict[str, int | str | None]:
    """Return the training size and the epoch from which a row's loss stays below its control's, and both as text."""
    size, epoch = None, None
    if control is not None and not first(row, "is_control"):
        (ours, our_curves), (theirs, their_curves) = ((members_of(one), _curves(one)) for one in (row, control))
        if common := [seed for seed in ours if seed in theirs]:
            sizes, losses = _sizes_and_losses([ours[seed] for seed in common])
            size = crossing(sizes, losses, _sizes_and_losses([theirs[seed] for seed in common])[1])
            if our_curves.keys() & their_curves.keys() >= {*common}:
                epoch = crossing_epoch(*([of[seed] for seed in common] for of in (our_curves, their_curves)))
    where = [*([f"n = {size:,}"] if size is not None else []), *([f"epoch {epoch}"] if epoch is not None else [])]
    text, to_control = None, first(row, "test_loss_bits_difference")
    if to_control is not None and to_control.standard_error is not None:  # one seed does not predict other seeds
        text = ", ".join([f"from {' and '.join(where)}" if where else "no", *["backfires"] * to_control.below])
    return {"crossing_size": size, "crossing_epoch": epoch, "crossing": text}


def _curves(row: Row) -> dict[int, LossCurve]:
    """Return the loss curves of a row by seed."""
    return {seed: curve for seed, curve in zip(row["seed"], row["loss_curve"], strict=True) if curve is not None}


def _sizes_and_losses(members: Sequence[Member]) -> tuple[list[int], np.ndarray]:
    """Return training sizes and the mean test loss at each; both are empty for runs with a single size."""
    curves = [(curve, s) for result, s in members if (curve := result.test_losses)]
    losses = [[bits[s] for _, bits in curve] for curve, s in curves]
    return [n for curve, _ in curves[:1] for n, _ in curve], np.array([*map(mean, zip(*losses, strict=True))])


def _training_remarks(shown: Sequence[Column], rows: Sequence[Row]) -> list[str]:
    """Return remarks on trainings behind the shown numbers that ended on the plateau or kept their initial weights."""
    sentences = []
    for kind in dict.fromkeys(kind for column in shown for kind in column.trainings):
        for count, happened in _HAPPENED.items():
            named = zip(names_of(rows), rows, strict=True)
            of = [f"{name}: in {number}" for name, row in named if (number := first(row, f"{kind}_{count}"))]
            sentences += [f"{'; '.join(of)} {_REMARKED[kind]} {happened}."] if of else []
    return sentences


def _notes(shown: Sequence[Column], rows: Sequence[Row], further_notes: Notes) -> list[str]:
    """Return notes that explain the errors and stars in these columns, few examples, and the limits of presets."""
    numbers = [first(row, column.name) for column in shown for row in rows]
    differences = [one for one in numbers if isinstance(one, Difference)]
    presets = presets_of(rows)
    sentences = {
        "± of Δ: standard error, paired by seed.": any(one.standard_error is not None for one in differences),
        "A second error of Δ, or one of a single seed, is over test examples (bootstrap).": any(
            one.test_error is not None for one in differences
        ),
        f"*: p ≤ {LEVEL} over seeds, not over test examples (Student's t, Holm's correction for the rows of the "
        "table).": any(one.significant for one in differences),
        "train=published codes with losses on a part of the training examples, and reports as test loss the last of "
        "them, of networks that were trained on the parts before.": ("train", "published") in presets,
        **dict.fromkeys([*_few_examples_notes(rows), *_held_out_notes(rows), *further_notes(rows)], True),
        # by how much: docs/guide/results.md
        "train=quick cuts trainings short: losses come out too high.": ("train", "quick") in presets,
    }
    return [*deviation_over(map(seeds_of, rows)), *(sentence for sentence, holds in sentences.items() if holds)]


def presets_of(rows: Sequence[Row]) -> list[tuple[str, Any]]:
    """Return presets, and options that differ from them, of the finished rows with networks; kernels train nothing."""
    runs = [runs_of(row)[0] for row in rows]
    trained = [run for run in runs if any(_KINDS["final"](run.result)[-1].epochs)]
    return [choice for run in trained for choice in setting(run.config, run.command).items()]


def _few_examples_notes(rows: Sequence[Row]) -> list[str]:
    """Return notes on runs with too few training examples to estimate class moments."""
    notes = dict[str, None]()
    for result in results_of(rows):
        train = result.certificate["train"]
        remedy = "smaller images (dataset.size) or more" if "size" in result.config["dataset"] else "more"
        if result.dim is not None:  # older results lack it
            said = few_examples(train.n, result.smallest_class, result.dim, _erased_order(train))
            effect = "Differences to the control show this rather than what erasing costs"
            notes |= {f"Few examples: {said}. {effect}; take {remedy} of them.": None} if said else {}
    return [*notes]


def results_of(rows: Sequence[Row]) -> list[Result]:
    """Return the results behind rows."""
    return [run.result for row in rows for run in runs_of(row) if run.result is not None]


def _held_out_notes(rows: Sequence[Row]) -> list[str]:
    """Return a note on erasers after which class means are equal on training examples but differ on test examples."""
    shares = {first(row, "eraser"): _test_share(row) for row in rows}
    whole = next((share for eraser, share in shares.items() if eraser.name == "control"), None)
    apart = [
        f"{eraser.display}{f' ({100 * share / whole:.0f} %)' if whole else ''}"
        for eraser, row in {first(row, "eraser"): row for row in rows}.items()  # models have the same data
        if (share := shares[eraser]) and _erased_order(results_of([row])[0].certificate["train"])
    ]
    if not apart:
        return []
    relative = "; in brackets their share of the variance, relative to the control's" if whole else ""
    return [f"Erased class means still differ on test examples (z > {_DETECTED}{relative}): {', '.join(apart)}."]


def _test_share(row: Row) -> float | None:
    """Return the share of the test examples' variance that lies between classes; None if it may be chance."""
    test = results_of([row])[0].certificate["test"]
    if test.order_shares and test.order_z_scores and test.order_z_scores[0] > _DETECTED:
        return test.order_shares[0]
    return None


def _erased_order(train: Certificate) -> int:
    """Return the order up to which an eraser has made class moments equal on the training split."""
    if not train.mean_gap <= _EQUAL:
        return 0
    return 2 if train.covariance_gap <= _EQUAL else 1


def figures_of(frame: pd.DataFrame) -> dict[str, Drawing]:
    """Return a dictionary from the caption to the figure of loss curves; empty if there are no loss curves."""
    shown = [panel for panel in panels_of(frame) if any(values(row, "loss_curve") for row in panel[1])]
    return {"loss curves": (draw_loss_curves, shown)} if shown else {}


def sections(frames: Sequence[pd.DataFrame], names: Sequence[str], _: Note) -> list[Section]:
    """Return the sections of a report; `names` chooses columns of `COLUMNS`, by default the usual ones."""
    return sections_of_tables(frames, partial(table_of, names=names), figures_of)


def draw_loss_curves(shown: Sequence[Panel], colours: Colours, path: Path) -> Path:
    """Draw validation loss over epochs: a thin line per seed, and their mean until the first seed stops."""
    with figure_of_panels(path, len(shown)) as (figure, axes):
        for (title, rows), ax in zip(shown, axes, strict=True):
            for row in rows:
                curves, missing, eraser = values(row, "loss_curve"), first(row, "incomplete"), first(row, "eraser")
                width = line_width(colours, eraser)
                look: Any = {"color": colours[eraser], "linestyle": "--" if missing else "-"}
                for curve in curves[: len(curves) if len(curves) > 1 else 0]:
                    ax.plot(curve.epochs, curve.validation_bits, linewidth=0.7, alpha=0.45, **look)
                shortest = min((len(curve.epochs) for curve in curves), default=0)
                middle = np.mean([curve.validation_bits[:shortest] for curve in curves], axis=0) if curves else []
                label = f"{eraser.display} ({missing})" if missing else eraser.display
                ax.plot(curves[0].epochs[:shortest] if curves else [], middle, linewidth=width, label=label, **look)
            uniform, entropy = math.log2(first(rows[0], "num_classes")), first(rows[0], "label_entropy_bits")
            chance_line(ax, *((uniform, "uniform code") if entropy is None else (entropy, "label entropy")))
            ax.set_title(wrapped(title, 4.0))
            ax.set(xlabel="epoch", ylabel="validation loss\n(bits per label)")
            _epoch_axis(ax, max(epochs for row in rows for epochs in values(row, "epochs")))
        name_lines(figure, axes)
    return path


def _epoch_axis(ax: Axes, last: float) -> None:
    """Make the axis logarithmic in epoch + 1 up to the `last` epoch, so that it includes epoch 0 without a kink."""
    steps = (digit * 10**power for power in range(6) for digit in ((1, 3) if last > 100 else (1, 2, 5)))
    ax.set_xscale("function", functions=(np.log1p, np.expm1))
    ax.xaxis.set_major_locator(FixedLocator([0, *(step for step in steps if step <= last)], nbins=9))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ax.set_xlim(0, max(last, 1))
