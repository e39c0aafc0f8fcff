"""The table of trained runs and their comparison with the control: its columns, each defined once.

A column shows one or a few numbers of an entry (`harness.results.arrange`).
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean

from harness.loss_curves import DROP_WINDOW_EPOCHS
from harness.results.arrange import Comparison, Entry
from harness.results.run_settings import setting, whole
from harness.results.statistics import LEVEL, deviation_over
from harness.results.table import Column, Record, Row, Table, number, spread, values, word


def _marked(column: Column, measure: str) -> Column:
    """Return the column with marks of missing seeds, and of trainings on the plateau or at their initial weights."""

    def text(entry: Row) -> str:
        counts = {"‡": f"{measure}_on_plateau", "§": f"{measure}_untrained", "†": "incomplete"}
        marks = (f"{mark}{entry[count]}" for mark, count in counts.items() if entry[count])
        return " ".join(filter(None, [column.text(entry), *marks]))

    return replace(column, text=text)


def _difference(heading: str, of: str, name: str, unit: str, meaning: str = "", **marks: str) -> Column:
    """Return the column of an entry's difference to the control; CSV has its numbers, and `marks` of it by name."""
    numbers = {unit: "mean", "standard_error": "standard_error", "p_holm": "p_value", "test_error": "test_error"}
    fields = {f"{name}_{key}": field for key, field in numbers.items()} | marks

    def record(entry: Row) -> Record:
        return {key: entry[of] and getattr(entry[of], field) for key, field in fields.items()}

    return Column(heading, lambda entry: f"{entry[of] or ''}", record, meaning)


def _csv(*names: str) -> Column:
    """Return a column of CSV alone, of values that all seeds have in common."""
    return Column("", record=lambda entry: {name: next(iter(values(entry, name)), None) for name in names})


def _below(entry: Row) -> str:
    difference, size, epoch = entry["loss_difference"], *_CROSSING.record(entry).values()
    if difference is None or difference.standard_error is None:  # one seed says nothing of others
        return ""
    where = [*([f"n = {size:,}"] if size is not None else []), *([f"epoch {epoch}"] if epoch is not None else [])]
    return ", ".join([f"from {' and '.join(where)}" if where else "no", *["backfires"] * difference.below])


def seeds_of(entry: Row) -> int:
    """Return how many seeds an entry has."""
    return len(values(entry, "seed"))


_CROSSING = _csv("crossing_size", "crossing_epoch")
_CSV_ALONE = (
    Column("", record=lambda entry: {"run_ids": " ".join(dict.fromkeys(values(entry, "run_id")))}),
    Column("", record=lambda entry: {"seeds": seeds_of(entry)}),
    _csv("incomplete", "bits_per_sample_on_plateau", "published_on_plateau", "loss_bits_on_plateau"),
    _csv("final_loss_test_error", "out_of_range", "seconds"),
    _csv(*(f"test_order_{name}_{p}" for p in (1, 2, 3, 4) for name in ("shares", "errors", "z_scores"))),
)  # fmt: skip
ERASER = word("eraser", "eraser")
SEEDS = Column("seeds", lambda entry: f"{seeds_of(entry) or ''}")

# columns of the codelength, by the names that --columns takes
CODES = {
    "bits": _marked(
        spread(
            "bits per label", "bits_per_label", ".3f",
            "prequential codelength; a model at chance needs log2 k",
        ),
        "bits_per_sample",
    ),
    "difference": _difference(
        "Δ to control", "code_difference", "difference", "bits_per_label", "of the codelength",
        significant="significant",
    ),
    "calibrated": _marked(
        spread(
            "calibrated", "calibrated_bits_per_label", ".3f",
            "the codelength by logits divided by a temperature for each training size, fitted on the validation split",
        ),
        "bits_per_sample",
    ),
    "excess_bits": spread(
        "excess (bits)", "excess_bits", ",.0f",
        "codelength of all labels less N times the test loss (docs/codes.md)",
    ),
    "surplus_bits": spread(
        "surplus (bits)", "surplus_bits", ",.0f", "above the control's test loss, of all labels"
    ),
    "sample_complexity": Column(
        "sample complexity",
        lambda entry: f"{entry['sample_complexity'] or ''}",
        _csv("sample_complexity").record,
        "training size from which new labels cost no more than the control's test loss, the largest over seeds",
    ),
    "area_bits": spread("area (bits)", "area_bits", ",.0f", "of labels, above the last block's"),
    "published": _marked(
        spread(
            "Table 16's unit", "published_units", ".3f",
            "Σ n_{i+1}·CE_i / N, the unit of the paper's Table 16 (not a codelength)",
        ),
        "published",
    ),
}  # fmt: skip
# columns of networks trained on everything
FINALS = {
    "loss": _marked(
        spread(
            "test loss (bits)", "test_loss_bits", ".4f", "per label, of networks trained on everything",
            csv="final_loss_bits",
        ),
        "loss_bits",
    ),
    "accuracy": spread("accuracy (%)", "accuracy", ".1f", scale=100),
    "gap": _difference(
        "Δ of test loss", "loss_difference", "final_gap", "bits", "to the control's", backfires="below"
    ),
    "below": Column(
        "below control", _below, _CROSSING.record,
        "training size from which the test loss, and epoch from which the best validation loss so far stays below the "
        "control's; a run backfires that ends significantly below it",
    ),
    "fall": number(
        "sharpest fall (bits)", "sharp_drop_bits", ".2f",
        f"of the validation loss of the last training within {DROP_WINDOW_EPOCHS} epochs, and when it began; means "
        "over seeds",
        over=mean,
    ),
    "fall_epoch": number("at epoch", "sharp_drop_epoch", ".0f", over=lambda epochs: whole(mean(epochs))),
    "training_loss": spread(
        "training loss", "train_loss_bits", ".4f",
        "on the images without augmentation, at the lowest validation loss",
    ),
    "end_loss": spread("at the end", "end_train_loss_bits", ".4f", "training loss when training ended"),
    "entropy": number(
        "entropy", "label_entropy_bits", ".4f", "of the training labels, the best that a constant predictor can do"
    ),
    "mean_gap": number(
        "gap of means", "mean_gap", ".1g",
        "between classes, relative, as that of covariances on the training split: no promise goes further",
    ),
    "covariance_gap": number("gap of covariances", "covariance_gap", ".1g"),
    "test_mean_gap": number(
        "gap of means, test", "test_mean_gap", ".1g", "the same on the test split, under the same map"
    ),
    "test_covariance_gap": number("gap of covariances, test", "test_covariance_gap", ".1g"),
    "edit": number(
        "edit (%)", "edit_size", ".3g", "share of the variance of the training images that erasing them takes", 100
    ),
    "parameters": number("parameters", "parameters", ","),
}  # fmt: skip
BY_NAME = {**CODES, **FINALS}
_USUAL = {
    "mdl": ("bits", "difference", "loss", "accuracy"),
    "train": ("loss", "gap", "accuracy", "training_loss", "entropy"),
}


def table_of(comparison: Comparison, names: Sequence[str] = ()) -> Table:
    """Tabulate runs of `mdl` or `train`, a row per model and eraser; CSV has every column of the command.

    Args:
        comparison: the runs.
        names: columns to show; a command may lack some. By default the usual ones, as far as anything is in them.
    """
    known, entries = BY_NAME if comparison.command == "mdl" else FINALS, comparison.entries
    shown = [known[name] for name in names or _USUAL[comparison.command] if name in known]
    if not names:
        shown = [column for column in shown if any(map(column.text, entries))]
    row = word("model" if comparison.dataset else "dataset · model", "model")
    about = f"{comparison.command}: {comparison.dataset}, " if comparison.dataset else ""
    caption = notes(shown, entries)
    also = (row, ERASER, *_CSV_ALONE, *known.values())
    return Table.of(comparison.name, (row, ERASER, *shown, SEEDS), entries, caption, also, about + comparison.setting)


_ROUGH = {  # measured on the digits with five seeds: docs/guide/results.md
    "mdl": "mdl=quick cuts the training sizes to three, and codelengths come out too long (an MLP's Δ of LEACE on the "
    "digits is +2.37, by mdl=default +1.80)",
    "train": "train=quick cuts trainings short (its test loss there is 1.33, by train=default 1.30)",
}


def notes(shown: Sequence[Column], entries: Sequence[Entry]) -> str:
    """Explain the errors and marks that occur in these columns of a table, and how far off quick runs can be."""
    run = [entry for entry in entries if entry["runs"]]
    compared = {"difference": "code_difference", "gap": "loss_difference"}
    in_shown = [of for name, of in compared.items() if BY_NAME[name] in shown]
    differences = [entry[name] for name in in_shown for entry in run if entry[name]]
    sentences = []
    if over := deviation_over(map(seeds_of, run)):
        sentences.append(over)
        if any(difference.standard_error is not None for difference in differences):
            sentences[-1] += "; of Δ, paired by seed, the standard error"
    if FINALS["gap"] in shown and any(difference.test_error is not None for difference in differences):
        sentences.append("A second error of Δ, or one of a single seed, is over test examples (bootstrap)")
    if any(difference.significant for difference in differences):
        test = "Student's t, Holm's correction for the rows of the table"
        sentences.append(f"*: p ≤ {LEVEL} over seeds, not over test examples ({test})")
    if any(entry["bits_per_sample_on_plateau"] or entry["loss_bits_on_plateau"] for entry in run):
        sentences.append(
            "‡: trainings that never left the plateau: their training loss stayed at the label entropy until "
            "they were stopped, and they do not say what the network can learn"
        )
    if any(entry["bits_per_sample_untrained"] or entry["loss_bits_untrained"] for entry in run):
        sentences.append("§: trainings that kept their initial weights: no epoch had a lower validation loss")
    if any(entry["incomplete"] for entry in entries):
        sentences.append("†: not run, not finished, or fewer seeds than others of the row")
    settings = [setting(entry["runs"][0].config) for entry in run]
    sentences += [text for group, text in _ROUGH.items() if any(each.get(group) == "quick" for each in settings)]
    return " ".join(f"{sentence}." for sentence in sentences)
