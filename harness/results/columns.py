"""The table of networks trained on everything and their comparison with the control: its columns, each defined once.

A column shows one or a few numbers of a row (`harness.results.arrange`).
"""

import math
from collections.abc import Sequence
from statistics import mean

import pandas as pd

from harness.loss_curves import DROP_WINDOW_EPOCHS
from harness.results.arrange import rows_of
from harness.results.held_out_notes import few_examples_notes, held_out_notes
from harness.results.run_settings import setting, whole
from harness.results.table import Column, Record, Row, Table, number, spread, values, word
from harness.statistics import LEVEL, Difference, deviation_over


def difference(heading: str, column: str, meaning: str = "") -> Column:
    """Return a column's difference to the control; CSV has the numbers of `harness.results.compare`."""
    name, unknown = f"{column}_difference", dict.fromkeys(_UNKNOWN)

    def record(entry: Row) -> Record:
        return {f"{column}_{key}": number for key, number in (entry[name].record() if entry[name] else unknown).items()}

    return Column(heading, lambda entry: f"{entry[name] or ''}", record, meaning, name)


def _csv(*names: str) -> Column:
    """Return a column of CSV alone, of values that all seeds have in common."""
    return Column("", record=lambda entry: {name: next(iter(values(entry, name)), None) for name in names})


def _crossing(entry: Row) -> str:
    to_control, size, epoch = entry["test_loss_bits_difference"], *_CROSSING.record(entry).values()
    if to_control is None or to_control.standard_error is None:  # one seed says nothing of others
        return ""
    where = [*([f"n = {size:,}"] if size is not None else []), *([f"epoch {epoch}"] if epoch is not None else [])]
    return ", ".join([f"from {' and '.join(where)}" if where else "no", *["backfires"] * to_control.below])


def seeds_of(entry: Row) -> int:
    """Return how many seeds a row has."""
    return len(values(entry, "seed"))


_UNEQUAL_BITS = 0.005  # log2 k less the label entropy, from which a table tells them apart
_TRAININGS = {  # by column, the trainings that its number rests on (`measures_of`), and what the notes call them
    "bits_per_label": ("coding", "trainings"),
    "calibrated_bits_per_label": ("coding", "trainings"),
    "published_units": ("trainings", "trainings of all sizes"),
    "test_loss_bits": ("final", "trainings on the whole split"),
}
_HAPPENED = {
    "untrained": "the untrained network was scored, as the validation loss never improved",
    "on_plateau": "the training loss stayed at the label entropy until training stopped: the number does not say what "
    "the network can learn",
}
_UNKNOWN = Difference(0.0, None, 1.0).record()
_CROSSING = _csv("crossing_size", "crossing_epoch")
RUN = Column("", record=lambda row: {"runs": " ".join(dict.fromkeys(values(row, "run_id"))), "seeds": seeds_of(row)})
_CSV_ALONE = (
    _csv("dataset", "setting"),
    RUN,
    _csv("incomplete", "coding_on_plateau", "trainings_on_plateau", "final_on_plateau"),
    _csv("certificate.train.out_of_range", "seconds"),
    _csv(*(f"certificate.test.order_{name}_{p}" for p in (1, 2, 3, 4) for name in ("shares", "errors", "z_scores"))),
)
WHO = word("model", "model"), word("eraser", "eraser")
SEEDS = Column("seeds", lambda entry: f"{seeds_of(entry) or ''}")

# columns of networks trained on everything
_USUAL = ("test_loss_bits", "test_loss_bits_difference", "accuracy", "train_loss_bits", "label_entropy_bits")
FINALS = (
    spread(
        "test loss (bits)", "test_loss_bits", ".4f", "per label, of networks trained on everything"
    ),
    spread("accuracy (%)", "accuracy", ".1f", scale=100),
    difference("Δ of test loss", "test_loss_bits", "to the control's"),
    Column(
        "below control", _crossing, _CROSSING.record,
        "training size from which the test loss, and epoch from which the best validation loss so far stays below the "
        "control's; a run backfires that ends significantly below it",
        "crossing",
    ),
    number(
        "sharpest fall (bits)", "sharp_drop_bits", ".2f",
        f"of the validation loss of the last training within {DROP_WINDOW_EPOCHS} epochs, and when it began; means "
        "over seeds",
        over=mean,
    ),
    number("at epoch", "sharp_drop_epoch", ".0f", over=lambda epochs: whole(mean(epochs))),
    spread(
        "training loss", "train_loss_bits", ".4f",
        "on the training examples without augmentation, at the lowest validation loss",
    ),
    spread("at the end", "end_train_loss_bits", ".4f", "training loss when training ended"),
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


def table_of(
    frame: pd.DataFrame,
    names: Sequence[str] = (),
    codes: Sequence[Column] = (),
    on_request: Sequence[Column] = (),
) -> Table:
    """Tabulate networks trained on everything, a row per model and eraser; CSV has every column but those on request.

    Args:
        frame: the runs (`harness.results.arrange`).
        names: columns to show, the usual ones by default; those that are not there or empty are not shown.
        codes: further columns.
        on_request: columns that CSV has only where they are shown.
    """
    possible = {column.name: column for column in (*codes, *on_request, *FINALS)}
    shown = [possible[name] for name in names or _USUAL if name in possible]
    also, entries = (*WHO, *_CSV_ALONE, *codes, *FINALS), rows_of(frame)
    remarks = [*_training_remarks(shown, entries), *incomplete_remarks(entries)]
    table, title = entries[0]["table"], entries[0]["title"]
    return Table.of(table, (*WHO, *shown, SEEDS), entries, notes(shown, entries), also, title, remarks)


def _entropy_notes(entries: Sequence[Row]) -> list[str]:
    """Return the label entropy of codes beside log2 k, where classes are so unequal that they differ."""
    coded = [entry for entry in entries if values(entry, "bits_per_label")]
    known = {(k, bits) for entry in coded for k in entry["num_classes"] for bits in values(entry, "label_entropy_bits")}
    return [
        f"log2 k is {math.log2(k):.3f} bits, the label entropy {bits:.3f}: what a label costs once the classes' shares "
        "are known."
        for k, bits in sorted(known)
        if math.log2(k) - bits >= _UNEQUAL_BITS
    ]


def _training_remarks(shown: Sequence[Column], entries: Sequence[Row]) -> list[str]:
    """Say which trainings behind the shown numbers were stopped on the plateau, or kept their initial weights."""
    sentences = []
    for kind, trainings in dict.fromkeys(_TRAININGS[column.name] for column in shown if column.name in _TRAININGS):
        for count, happened in _HAPPENED.items():
            counts = [(entry, entry[f"{kind}_{count}"]) for entry in entries]
            of = [f"{_who(entry, entries)}: in {of}" for entry, of in counts if of]
            sentences += [f"{'; '.join(of)} {trainings} {happened}."] if of else []
    return sentences


def incomplete_remarks(entries: Sequence[Row]) -> list[str]:
    """Say which rows have no result, or fewer seeds than others of the model."""
    rows = [f"{_who(entry, entries)} ({entry['incomplete']})" for entry in entries if entry["incomplete"]]
    return [f"Not finished: {'; '.join(rows)}."] if rows else []


def _who(entry: Row, entries: Sequence[Row]) -> str:
    """Return the eraser of a row, after what tells the row from others of this eraser."""
    several = [part for part in ("dataset", "model") if len({one[part] for one in entries}) > 1]
    return ", ".join(entry[part].display for part in (*several, "eraser"))


def notes(shown: Sequence[Column], entries: Sequence[Row]) -> list[str]:
    """Explain the errors and stars that occur in these columns of a table, and how far off quick runs can be."""
    run = [entry for entry in entries if entry["runs"]]
    compared = [column.name for column in shown if column.name.endswith("_difference")]
    differences = [entry[name] for name in compared for entry in run if entry[name]]
    presets = [choice for entry in run for choice in setting(entry["runs"][0].config).items()]
    sentences = {
        "± of Δ: standard error, paired by seed.": any(one.standard_error is not None for one in differences),
        "A second error of Δ, or one of a single seed, is over test examples (bootstrap).": any(
            one.test_error is not None for one in differences
        ),
        f"*: p ≤ {LEVEL} over seeds, not over test examples (Student's t, Holm's correction for the rows of the "
        "table).": any(one.significant for one in differences),
        "train=published codes with losses on a part of the training examples, and reports as test loss the last of "
        "them, of networks that were trained on the parts before.": ("train", "published") in presets,
        # by how much: docs/guide/results.md
        **dict.fromkeys([*_entropy_notes(run), *few_examples_notes(run), *held_out_notes(run)], True),
        "mdl=quick has three training sizes: codelengths come out too long.": ("mdl", "quick") in presets,
        "train=quick cuts trainings short: losses come out too high.": ("train", "quick") in presets,
    }
    return [*deviation_over(map(seeds_of, run)), *(sentence for sentence, holds in sentences.items() if holds)]
