"""The columns of tables of trained runs and their comparison with the control, each defined once.

A column is a function of an entry's frame, which has a row per seed, or of its differences to the control.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

from harness.loss_curves import DROP_WINDOW_EPOCHS
from harness.result import MdlResult
from harness.results.entry import Entry
from harness.results.excess import area_bits, sample_complexity, surplus_bits
from harness.results.labels import setting
from harness.results.statistics import LEVEL, PLATEAU, Difference, deviation_over, difference_record
from harness.results.table import Column, Record, number, spread, word
from harness.trained import Coded, stuck, untrained


def _stuck(which: slice) -> Callable[[Entry], str]:
    """Return the function that counts the trainings, by size, that never left the plateau."""
    return lambda entry: "" if entry.result is None else stuck(entry.result.trainings[which])


_everywhere, _final = _stuck(slice(None)), _stuck(slice(-1, None))


def _coding(entry: Entry) -> str:
    """Count the trainings on the plateau that the codelength rests on."""
    return "" if entry.result is None else stuck(entry.result.coding)


def _seeds(
    heading: str,
    form: str,
    column: str,
    meaning: str = "",
    plateaus: Callable[[Entry], str] | None = None,
    values: Callable[[Entry], Sequence[float]] | None = None,
) -> Column[Entry]:
    """Return the column of mean and standard deviation over the seeds of a column of the frame.

    `plateaus` counts the trainings that it rests on and that never left the plateau: they and missing seeds are marked.
    `values` are by seed, where the frame has no such column.
    """
    scale = 100 if heading.endswith("(%)") else 1
    own = spread(heading, f"{column}_mean", form, values or (lambda entry: entry.values(column)), meaning, scale)
    if plateaus is None:
        return own

    def text(entry: Entry) -> str:
        marks = (f"{mark}{count}" for mark, count in (("‡", plateaus(entry)), ("†", entry.missing)) if count)
        return " ".join(filter(None, [own.text(entry), *marks]))

    return replace(own, text=text)


def _delta(heading: str, of: Callable[[Entry], Difference | None], unit: str, meaning: str = "") -> Column[Entry]:
    """Return the column of a difference of codelengths to the control."""

    def record(entry: Entry) -> Record:
        found = of(entry)
        return {**difference_record("difference", found, unit), "significant": found and found.significant}

    return Column(heading, lambda entry: f"{of(entry) or ''}", record, meaning)


def _surplus(entry: Entry) -> Sequence[float]:
    if not isinstance(entry.result, MdlResult) or entry.control_bits is None:
        return ()
    return surplus_bits(entry.result, entry.control_bits)


def _complexity(entry: Entry) -> int | str | None:
    """Return the largest size that a seed needs; "> N" where one needs more."""
    if not isinstance(entry.result, MdlResult) or entry.control_bits is None:
        return None
    needed = sample_complexity(entry.result, entry.control_bits)
    reached = [n for n in needed if n is not None]
    return f"> {entry.result.train_size}" if len(reached) < len(needed) else max(reached)


def _area(entry: Entry) -> Sequence[float]:
    return area_bits(entry.result) if isinstance(entry.result, MdlResult) else ()


def _first(entry: Entry, column: str) -> Any:
    """Return what all seeds of an entry have in a column; None where it is not known."""
    return next(iter(entry.values(column)), None)


def _gap(heading: str, split: str, moments: str, meaning: str = "") -> Column[Entry]:
    name = f"{'' if split == 'train' else 'test_'}{moments}_gap"
    return number(heading, name, ".1g", lambda entry: _first(entry, f"certificate.{split}.{moments}_gap"), meaning)


def _order(p: int, meaning: str = "") -> Column[Entry]:
    names = [f"{name}_{p}" for name in ("order_shares", "order_errors", "order_z_scores")]

    def record(entry: Entry) -> Record:
        return {f"test_{name}": _first(entry, f"certificate.test.{name}") for name in names}

    def text(entry: Entry) -> str:
        share, error, z_score = record(entry).values()
        if share is None or error is None:
            return ""
        # older results lack the z-score: where classes do not differ, errors are √2 times the spread
        seen = share > 2**0.5 * error if z_score is None else z_score > 2
        return f"{100 * share:.2g}" if seen else f"< {100 * max(share, 0) + 200 * error:.1g}"

    return Column(f"order {p} left (%)", text, record, meaning)


def _below(entry: Entry) -> str:
    if entry.loss_difference is None or entry.loss_difference.standard_error is None:  # one seed says nothing of others
        return ""
    size, epoch = entry.crossing_size, entry.crossing_epoch
    where = [*([f"n = {size:,}"] if size is not None else []), *([f"epoch {epoch}"] if epoch is not None else [])]
    return ", ".join([f"from {' and '.join(where)}" if where else "no", *["backfires"] * entry.loss_difference.below])


def _drop(entry: Entry) -> Record:
    drop = entry.result.sharp_drop if entry.result else None
    return {"sharp_drop_bits": drop and mean(drop.bits), "sharp_drop_epoch": drop and drop.mean_epoch}


def _plateaus(entry: Entry) -> str:
    both = (_coding(entry), "coding"), (_final(entry), "final")
    return ", ".join(f"{count} {which}" for count, which in both if count)


ROW: Column[Entry] = word("dataset · model", "model", lambda entry: entry.row)
ERASER: Column[Entry] = word("eraser", "eraser", lambda entry: entry.eraser)
RUNS = Column[Entry](
    "runs",
    lambda entry: " ".join(entry.run_ids),
    lambda entry: {
        "run_ids": " ".join(entry.run_ids),
        "seeds": len(entry.result.seeds) if entry.result else 0,
        "incomplete": entry.missing,
        "bits_per_sample_on_plateau": _coding(entry),
        "published_on_plateau": _everywhere(entry) if isinstance(entry.result, Coded) else "",
        "loss_bits_on_plateau": _final(entry),
    },
)
SEEDS = Column[Entry]("seeds", lambda entry: f"{len(entry.result.seeds)}" if entry.result else "")
PUBLISHED = _seeds("Table 16's unit", ".3f", "published_units", plateaus=_everywhere)
PUBLISHED_DELTA = _delta("Δ to control", lambda entry: entry.published_difference, "published_units")

# by the names by which a report's are chosen: of the codelength
CODES: dict[str, Column[Entry]] = {
    "bits": _seeds(
        "bits per label", ".3f", "bits_per_label", "prequential codelength; a model at chance needs log2 k", _coding
    ),
    "difference": _delta(
        "Δ to control", lambda entry: entry.code_difference, "bits_per_label", "of the codelength"
    ),
    "calibrated": _seeds(
        "calibrated", ".3f", "calibrated_bits_per_label",
        "the codelength by logits divided by a temperature for each training size, fitted on the validation split",
        _coding,
    ),
    "excess_bits": _seeds(
        "excess (bits)", ",.0f", "excess_bits", "codelength of all labels less N times the test loss (docs/bits.md)"
    ),
    "surplus_bits": spread(
        "surplus (bits)", "surplus_bits_mean", ",.0f", _surplus, "above the control's test loss, of all labels"
    ),
    "sample_complexity": Column(
        "sample complexity",
        lambda entry: f"{_complexity(entry) or ''}",
        lambda entry: {"sample_complexity": _complexity(entry)},
        "training size from which new labels cost no more than the control's test loss, the largest over seeds",
    ),
    "area_bits": spread("area (bits)", "area_bits_mean", ",.0f", _area, "of labels, above the last block's"),
}  # fmt: skip
# and of what is trained on everything
FINALS: dict[str, Column[Entry]] = {
    "loss": _seeds(
        "test loss (bits)", ".4f", "final_loss_bits", "per label, of networks trained on everything", _final,
        values=lambda entry: entry.values("test_loss_bits"),
    ),
    "loss_error": number(
        "error of the test loss", "final_loss_test_error", ".4f", lambda entry: entry.loss_error,
        "standard error over test examples",
    ),
    "accuracy": _seeds("accuracy (%)", ".1f", "accuracy"),
    "gap": Column(
        "Δ of test loss",
        lambda entry: f"{entry.loss_difference or ''}",
        lambda entry: difference_record("final_gap", entry.loss_difference),
        "to the control's",
    ),
    "below": Column(
        "below control",
        _below,
        lambda entry: {
            "backfires": entry.loss_difference and entry.loss_difference.below,
            "crossing_size": entry.crossing_size,
            "crossing_epoch": entry.crossing_epoch,
        },
        "training size from which the test loss, and epoch from which the best validation loss so far stays below the "
        "control's; a run backfires that ends significantly below it",
    ),
    "fall": Column(
        "sharpest fall (bits)",
        lambda entry: f"{entry.result.sharp_drop or ''}" if entry.result else "",
        _drop,
        f"of the validation loss of the last training within {DROP_WINDOW_EPOCHS} epochs, mean over seeds, and when it "
        "began",
    ),
    "training_loss": _seeds(
        "training loss", ".4f", "train_loss_bits",
        "on the images without augmentation, at the lowest validation loss, and at the end of training",
    ),
    "end_loss": _seeds("at the end", ".4f", "end_train_loss_bits"),
    "entropy": Column(
        "entropy",
        lambda entry: "" if (bits := _first(entry, "label_entropy_bits")) is None else f"{bits:.4f}",
        meaning="of the training labels, the best that a constant predictor can do",
    ),
    "plateau": Column(PLATEAU, _plateaus, meaning="trainings that the code rests on, and final ones"),
    "untrained": Column(
        "untrained",
        lambda entry: untrained(entry.result.trainings) if entry.result else "",
        meaning="trainings of all whose lowest validation loss is that of the initial weights, which are kept",
    ),
    "mean_gap": _gap(
        "gap of means", "train", "mean",
        "between classes, relative, as that of covariances on the training split: no promise goes further",
    ),
    "covariance_gap": _gap("gap of covariances", "train", "covariance"),
    "test_mean_gap": _gap("gap of means, test", "test", "mean", "the same on the test split, under the same map"),
    "test_covariance_gap": _gap("gap of covariances, test", "test", "covariance"),
    "edit": Column(
        "edit (%)",
        lambda entry: "" if (size := _first(entry, "certificate.train.edit_size")) is None else f"{100 * size:.3g}",
        lambda entry: {name: _first(entry, f"certificate.train.{name}") for name in ("edit_size", "out_of_range")},
        "share of the variance of the training images that erasing them takes",
    ),
    "order_1": _order(
        1,
        "share of the order's energy that lies between classes, on the test split, and so of orders 2 to 4; < where it "
        "is within two standard deviations of what shuffled labels give (docs/orders.md)",
    ),
    **{f"order_{p}": _order(p) for p in (2, 3, 4)},
    "parameters": Column(
        "parameters",
        lambda entry: f"{entry.result.parameters:,}" if entry.result else "",
        lambda entry: {name: _first(entry, name) for name in ("parameters", "seconds")},
    ),
}  # fmt: skip
BY_NAME = {**CODES, "published": PUBLISHED, **FINALS}
_DIFFERENCES: list[tuple[Column[Entry], Callable[[Entry], Difference | None]]] = [
    (CODES["difference"], lambda entry: entry.code_difference),
    (PUBLISHED_DELTA, lambda entry: entry.published_difference),
    (FINALS["gap"], lambda entry: entry.loss_difference),
]


def columns(names: str) -> list[Column[Entry]]:
    """Look up columns by space-separated names."""
    return [BY_NAME[name] for name in names.split()]


_ROUGH = {  # measured on the digits with five seeds: docs/guide/results.md
    "mdl": "mdl=quick cuts the training sizes to three, and codelengths come out too long (an MLP's Δ of LEACE on the "
    "digits is +2.37, by mdl=default +1.80)",
    "train": "train=quick cuts trainings short (its test loss there is 1.33, by train=default 1.30)",
}


def notes(shown: Sequence[Column[Entry]], entries: Sequence[Entry]) -> str:
    """Explain the errors and marks that occur in these columns of a table, and how far off quick runs can be."""
    results = [entry.result for entry in entries if entry.result is not None]
    found = [
        difference for column, of in _DIFFERENCES if column in shown for entry in entries if (difference := of(entry))
    ]
    said = []
    if over := deviation_over(len(result.seeds) for result in results):
        said.append(over)
        if any(difference.standard_error is not None for difference in found):
            said[-1] += "; of Δ, paired by seed, the standard error"
    if FINALS["gap"] in shown and any(difference.test_error is not None for difference in found):
        said.append("A second error of Δ, or one beside one seed, is over test examples (bootstrap)")
    if any(difference.significant for difference in found):
        test = "Student's t, Holm's correction for all Δ of the table"
        said.append(f"*: p ≤ {LEVEL} over seeds, not over test examples ({test})")
    if any(map(_everywhere, entries)):
        marks = f"‡ and {PLATEAU}" if FINALS["plateau"] in shown else "‡"
        said.append(
            f"{marks}: trainings that never left the plateau: their training loss stayed at the label entropy until "
            "they were stopped, and they do not say what the network can learn"
        )
    settings = [setting(result.config) for result in results]
    said += [rough for group, rough in _ROUGH.items() if any(each.get(group) == "quick" for each in settings)]
    return " ".join(f"{sentence}." for sentence in said)
