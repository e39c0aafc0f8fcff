"""Networks trained on everything, compared with the control: table, notes and loss curves."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from erasure.certificate import Certificate
from erasure.few_examples import few_examples
from harness.figure_helpers import chance_line, figure_of_panels, name_lines, wrapped
from harness.loss_curves import DROP_WINDOW_EPOCHS, crossing, crossing_epoch
from harness.result import Result
from harness.result_fields import Count, Endings, never_improved, on_plateau
from harness.results.arrange import Comparison, with_differences
from harness.results.columns import (
    RUN,
    SEEDS,
    WHO,
    Column,
    Row,
    Trainings,
    csv_only,
    difference,
    incomplete,
    incomplete_remarks,
    number,
    seeds_of,
    spread,
    values,
    who,
)
from harness.results.figures import Colours, Drawing, Panel, Section, line_width, sections_of_tables
from harness.results.read import Note
from harness.results.run_settings import setting, whole
from harness.results.table import Table
from harness.statistics import LEVEL, deviation_over

Member = tuple[Any, int]  # a result, and the position of a seed in it
Notes = Callable[[Sequence[Row]], Sequence[str]]

FINAL: Trainings = ("final",)  # trainings behind a column's number
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


def _crossing(row: Row) -> str:
    to_control, size, epoch = row["test_loss_bits_difference"], *_CROSSING.record(row).values()
    if to_control is None or to_control.standard_error is None:  # one seed does not predict other seeds
        return ""
    where = [*([f"n = {size:,}"] if size is not None else []), *([f"epoch {epoch}"] if epoch is not None else [])]
    return ", ".join([f"from {' and '.join(where)}" if where else "no", *["backfires"] * to_control.below])


_CROSSING = csv_only("crossing_size", "crossing_epoch")
_CSV_ALONE = (
    csv_only("dataset", "setting"),
    RUN,
    Column("", record=lambda row: {"incomplete": incomplete(row)}),
    Column("", record=lambda row: {f"{kind}_on_plateau": str(row["on_plateau"][kind]) for kind in _KINDS}),
    csv_only("certificate.train.out_of_range", "seconds"),
    csv_only(
        *(f"certificate.test.order_{name}_{p}" for p in (1, 2, 3, 4) for name in ("shares", "errors", "z_scores"))
    ),
)
_USUAL = ("test_loss_bits", "test_loss_bits_difference", "accuracy", "train_loss_bits", "label_entropy_bits")
FINALS = (
    spread(
        "test loss (bits)", "test_loss_bits", ".4f", "per label, of networks trained on everything", trainings=FINAL
    ),
    spread("accuracy (%)", "accuracy", ".1f", scale=100, trainings=FINAL),
    difference("Δ of test loss", "test_loss_bits", "to the control's", trainings=FINAL),
    Column(
        "below control", _crossing, _CROSSING.record,
        "training size from which the test loss, and epoch from which the best validation loss so far stays below the "
        "control's; a run backfires that ends significantly below it",
        "crossing",
        ("coding", "final"),
    ),
    number(
        "sharpest fall (bits)", "sharp_drop_bits", ".2f",
        f"of the validation loss of the last training within {DROP_WINDOW_EPOCHS} epochs, and when it began; means "
        "over seeds",
        over=mean, trainings=FINAL,
    ),
    number("at epoch", "sharp_drop_epoch", ".0f", over=lambda epochs: whole(mean(epochs)), trainings=FINAL),
    spread(
        "training loss", "train_loss_bits", ".4f",
        "on the training examples without augmentation, at the lowest validation loss",
        trainings=FINAL,
    ),
    spread("at the end", "end_train_loss_bits", ".4f", "training loss when training ended", trainings=FINAL),
    number(
        "entropy", "label_entropy_bits", ".4f", "of the training labels, the best that a constant predictor can do"
    ),
    number(
        "gap of means", "certificate.train.mean_gap", ".1g",
        "between classes, relative, as that of covariances on the training split: no promise goes further",
    ),
    number("gap of covariances", "certificate.train.covariance_gap", ".1g"),
    number(
        "gap of means, test", "certificate.test.mean_gap", ".1g", "the same on the test split, under the same map"
    ),
    number("gap of covariances, test", "certificate.test.covariance_gap", ".1g"),
    number(
        "edit (%)", "certificate.train.edit_size", ".3g",
        "share of the variance of the training examples that erasing them takes", 100,
    ),
    number("parameters", "parameters", ","),
)  # fmt: skip

COLUMNS = {column.name: column for column in FINALS}


def table_of(
    comparison: Comparison,
    names: Sequence[str] = (),
    further: Sequence[Column] = (),
    on_request: Sequence[Column] = (),
    further_notes: Notes = lambda _: (),
) -> Table:
    """Tabulate networks trained on everything, one row per model and eraser.

    The CSV contains every column, but columns of `on_request` only if they are shown.

    Args:
        comparison: the runs.
        names: columns to show, by default the usual ones; missing and empty columns are left out.
        further: columns before those of this module.
        on_request: columns that the CSV contains only if they are shown.
        further_notes: function that returns further notes on finished rows.
    """
    possible = {column.name: column for column in (*further, *on_request, *FINALS)}
    shown = [possible[name] for name in names or _USUAL if name in possible]
    written = (*shown, *further, *FINALS)
    rows = with_differences(measured(comparison), [column.compared for column in written if column.compared])
    remarks = [*_training_remarks(shown, rows), *incomplete_remarks(rows)]
    notes = _notes(shown, [row for row in rows if row["runs"]], further_notes)
    also = (*WHO, *_CSV_ALONE, *further, *FINALS)
    named = comparison.names
    return Table.of(named.table, (*WHO, *shown, SEEDS), rows, notes, also, named.title, remarks)


def measured(comparison: Comparison) -> list[Row]:
    """Return rows with counts of their trainings and the points where losses cross the control's."""
    controls = comparison.controls
    return [{**row, **_counts(row), **_crossings(row, controls.get(row["model"]))} for row in comparison.rows]


def _counts(row: Row) -> dict[str, dict[str, Count]]:
    """Return, by kind of training, the numbers that stayed on the plateau and that kept their initial weights."""
    trainings = {
        kind: [(training, s) for result, s in row["members"].values() for training in trainings_of(result)]
        for kind, trainings_of in _KINDS.items()
    }
    return {
        "on_plateau": {kind: on_plateau(of_kind) for kind, of_kind in trainings.items()},
        "never_improved": {kind: never_improved(of_kind) for kind, of_kind in trainings.items()},
    }


def _crossings(row: Row, control: Row | None) -> dict[str, int | None]:
    """Return the training size and the epoch from which a row's loss stays below its control's, or None."""
    found: dict[str, int | None] = {"crossing_size": None, "crossing_epoch": None}
    if control is None or row["is_control"] or not (common := [s for s in row["members"] if s in control["members"]]):
        return found
    ours, theirs = (_sizes_and_losses([each["members"][seed] for seed in common]) for each in (row, control))
    found["crossing_size"] = crossing(*ours, theirs[1])
    if all(seed in each["curves"] for seed in common for each in (row, control)):
        found["crossing_epoch"] = crossing_epoch(
            *([each["curves"][seed] for seed in common] for each in (row, control))
        )
    return found


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
            of = [f"{who(row, rows)}: in {row[count][kind]}" for row in rows if row[count][kind]]
            sentences += [f"{'; '.join(of)} {_REMARKED[kind]} {happened}."] if of else []
    return sentences


def _notes(shown: Sequence[Column], rows: Sequence[Row], further_notes: Notes) -> list[str]:
    """Return notes that explain the errors and stars in these columns, few examples, and the limits of presets."""
    compared = [column.name for column in shown if column.compared]
    differences = [row[name] for name in compared for row in rows if row[name]]
    first = [row["runs"][0] for row in rows]
    presets = [choice for run in first for choice in setting(run.config, run.command).items()]
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
    return [run.result for row in rows for run in row["runs"]]


def _held_out_notes(rows: Sequence[Row]) -> list[str]:
    """Return a note on erasers after which class means are equal on training examples but differ on test examples."""
    shares = {row["eraser"]: _test_share(row) for row in rows}
    whole = next((share for eraser, share in shares.items() if eraser.name == "control"), None)
    apart = [
        f"{row['eraser'].display}{f' ({100 * share / whole:.0f} %)' if whole else ''}"
        for row in {one["eraser"]: one for one in rows}.values()  # models have the same data
        if (share := shares[row["eraser"]]) and _erased_order(row["runs"][0].result.certificate["train"])
    ]
    if not apart:
        return []
    relative = "; in brackets their share of the variance, relative to the control's" if whole else ""
    return [f"Erased class means still differ on test examples (z > {_DETECTED}{relative}): {', '.join(apart)}."]


def _test_share(row: Row) -> float | None:
    """Return the share of the test examples' variance that lies between classes; None if it may be chance."""
    test = row["runs"][0].result.certificate["test"]
    known = test.order_shares and test.order_z_scores and test.order_z_scores[0] > _DETECTED
    return test.order_shares[0] if known else None


def _erased_order(train: Certificate) -> int:
    """Return the order up to which an eraser has made class moments equal on the training split."""
    if not train.mean_gap <= _EQUAL:
        return 0
    return 2 if train.covariance_gap <= _EQUAL else 1


def figures_of(comparison: Comparison) -> dict[str, Drawing]:
    """Return a dictionary from the caption to the figure of loss curves; empty if there are no loss curves."""
    shown = [panel for panel in comparison.panels if any(row["curves"] for row in panel[1])]
    return {"loss curves": (draw_loss_curves, shown)} if shown else {}


def sections(comparisons: Sequence[Comparison], names: Sequence[str], _: Note) -> list[Section]:
    """Return the sections of a report; `names` chooses columns of `COLUMNS`, by default the usual ones."""
    return sections_of_tables(comparisons, partial(table_of, names=names), figures_of)


def draw_loss_curves(shown: Sequence[Panel], colours: Colours, path: Path) -> Path:
    """Draw validation loss over epochs: a thin line per seed, and their mean until the first seed stops."""
    with figure_of_panels(path, len(shown)) as (figure, axes):
        for (title, rows), ax in zip(shown, axes, strict=True):
            for row in rows:
                curves, missing = [*row["curves"].values()], incomplete(row)
                width = line_width(colours, row["eraser"])
                look: Any = {"color": colours[row["eraser"]], "linestyle": "--" if missing else "-"}
                for curve in curves[: len(curves) if len(curves) > 1 else 0]:
                    ax.plot(curve.epochs, curve.validation_bits, linewidth=0.7, alpha=0.45, **look)
                shortest = min((len(curve.epochs) for curve in curves), default=0)
                middle = np.mean([curve.validation_bits[:shortest] for curve in curves], axis=0) if curves else []
                label = f"{row['eraser'].display} ({missing})" if missing else row["eraser"].display
                ax.plot(curves[0].epochs[:shortest] if curves else [], middle, linewidth=width, label=label, **look)
            uniform, entropy = math.log2(rows[0]["num_classes"][0]), values(rows[0], "label_entropy_bits")
            chance_line(ax, *((entropy[0], "label entropy") if entropy else (uniform, "uniform code")))
            ax.set_title(wrapped(title, 4.0))
            ax.set(xlabel="epoch", ylabel="validation loss\n(bits per label)")
            _epoch_axis(ax, max(epochs for row in rows for epochs in row["epochs"]))
        name_lines(figure, axes)
    return path


def _epoch_axis(ax: Axes, last: float) -> None:
    """Make the axis logarithmic in epoch + 1 up to the `last` epoch, so that it includes epoch 0 without a kink."""
    steps = (digit * 10**power for power in range(6) for digit in ((1, 3) if last > 100 else (1, 2, 5)))
    ax.set_xscale("function", functions=(np.log1p, np.expm1))
    ax.set_xticks([0, *(step for step in steps if step <= last)])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda epoch, _: f"{epoch:,.0f}"))
    ax.set_xlim(0, max(last, 1))
