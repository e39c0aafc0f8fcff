"""The columns of tables of trained runs and their comparison with the control, each defined once."""

from collections.abc import Callable, Sequence
from statistics import mean

from harness.loss_curves import DROP_WINDOW_EPOCHS
from harness.result import MdlResult, TrainedResult
from harness.results.comparison import Entry, Values, calibrated_bits, code_bits, final_bits, published_code
from harness.results.excess import area_bits, excess_bits, sample_complexity, surplus_bits
from harness.results.labels import setting
from harness.results.statistics import LEVEL, PLATEAU, Difference, deviation_over, difference_record
from harness.results.table import Column, Record, number, spread, word
from harness.trained import Coded, TrainedOnce, stuck, untrained


def known(show: Callable[[TrainedResult], str]) -> Callable[[Entry], str]:
    """Text of a result; nothing where there is none."""
    return lambda entry: "" if entry.result is None else show(entry.result)


# how many trainings never left the plateau: of those that the codelength rests on, of the last, of all
_coding = known(lambda result: stuck(result.coding))
_final = known(lambda result: stuck(result.trainings[-1:]))
_everywhere = known(lambda result: stuck(result.trainings))


def _of_seeds(values: Values) -> Callable[[Entry], Sequence[float]]:
    """Return the function of an entry that a spread is over: a result's values, or none."""
    return lambda entry: (values(entry.result) if entry.result is not None else None) or ()


def _rests_on(plateaus: Callable[[Entry], str]) -> Callable[[Entry], list[str]]:
    """Return an entry's marks: on what trainings its number rests, and what is missing."""
    return lambda entry: [f"{mark}{count}" for mark, count in (("‡", plateaus(entry)), ("†", entry.missing)) if count]


def _delta(of: Callable[[Entry], Difference | None], unit: str, meaning: str = "") -> Column[Entry]:
    def record(entry: Entry) -> Record:
        found = of(entry)
        return {**difference_record("difference", found, unit), "significant": found and found.significant}

    return Column("Δ to control", lambda entry: f"{of(entry) or ''}", record, meaning)


def _below(entry: Entry) -> str:
    if entry.loss_difference is None or entry.loss_difference.standard_error is None:  # one seed says nothing of others
        return ""
    size, epoch = entry.crossing_size, entry.crossing_epoch
    where = [*([f"n = {size:,}"] if size is not None else []), *([f"epoch {epoch}"] if epoch is not None else [])]
    return ", ".join([f"from {' and '.join(where)}" if where else "no", *["backfires"] * entry.loss_difference.below])


def _crossings(entry: Entry) -> Record:
    return {
        "backfires": entry.loss_difference and entry.loss_difference.below,
        "crossing_size": entry.crossing_size,
        "crossing_epoch": entry.crossing_epoch,
    }


def _drop(entry: Entry) -> Record:
    drop = entry.result.sharp_drop if entry.result else None
    return {"sharp_drop_bits": drop and mean(drop.bits), "sharp_drop_epoch": drop and drop.mean_epoch}


def _certified(split: str, name: str) -> Callable[[Entry], float | None]:
    return lambda entry: entry.result and getattr(entry.result.certificate[split], name)


def _gap(split: str, of: str, meaning: str = "") -> Column[Entry]:
    heading, name = f"gap of {of}s" + ", test" * (split == "test"), "test_" * (split == "test") + f"{of}_gap"
    return number(heading, name, ".1g", _certified(split, f"{of}_gap"), meaning)


def _coded_bits(of: Callable[[MdlResult], Sequence[float]]) -> Callable[[Entry], Sequence[float]]:
    return lambda entry: of(entry.result) if isinstance(entry.result, MdlResult) else ()


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


_ORDER_NUMBERS = ("order_shares", "order_errors", "order_z_scores")


def _order(p: int, meaning: str = "") -> Column[Entry]:
    def record(entry: Entry) -> Record:
        found = entry.result.certificate["test"].numbers() if entry.result else {}
        return {f"test_{name}_{p}": found.get(f"{name}_{p}") for name in _ORDER_NUMBERS}

    def text(entry: Entry) -> str:
        share, error, z_score = record(entry).values()
        if share is None or error is None:
            return ""
        # older results lack the z-score: where classes do not differ, errors are √2 times the spread
        seen = share > 2**0.5 * error if z_score is None else z_score > 2
        return f"{100 * share:.2g}" if seen else f"< {100 * max(share, 0) + 200 * error:.1g}"

    return Column(f"order {p} left (%)", text, record, meaning)


def _epochs(result: TrainedResult) -> str:
    epochs = result.trainings[-1].epochs
    return f"{min(epochs)}" if min(epochs) == max(epochs) else f"{min(epochs)}–{max(epochs)}"


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
PUBLISHED = spread("Table 16's unit", "published_units_mean", ".3f", _of_seeds(published_code)).noted(
    _rests_on(_everywhere)
)
PUBLISHED_DELTA = _delta(lambda entry: entry.published_difference, "published_units")

# by the names by which a report's are chosen: of the codelength
CODES: dict[str, Column[Entry]] = {
    "bits": spread(
        "bits per label", "bits_per_label_mean", ".3f", _of_seeds(code_bits),
        "prequential codelength; a model at chance needs log2 k",
    ).noted(_rests_on(_coding)),
    "difference": _delta(lambda entry: entry.code_difference, "bits_per_label", "of the codelength"),
    "calibrated": spread(
        "calibrated", "calibrated_bits_per_label_mean", ".3f", _of_seeds(calibrated_bits),
        "the codelength by logits divided by one temperature for each training size, fitted on the validation split",
    ).noted(_rests_on(_coding)),
    "excess_bits": spread(
        "excess (bits)", "excess_bits_mean", ",.0f", _coded_bits(excess_bits),
        "codelength of all labels less N times the test loss (docs/bits.md)",
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
    "area_bits": spread(
        "area (bits)", "area_bits_mean", ",.0f", _coded_bits(area_bits), "of labels, above the last block's"
    ),
}  # fmt: skip
GAPS = {  # of what erasing leaves
    "mean_gap": _gap(
        "train", "mean",
        "between classes, relative, as that of covariances on the training split: no promise goes further",
    ),
    "covariance_gap": _gap("train", "covariance"),
    "test_mean_gap": _gap("test", "mean", "the same on the test split, under the same map"),
    "test_covariance_gap": _gap("test", "covariance"),
}  # fmt: skip
ORDERS = {
    "order_1": _order(
        1,
        "share of the order's energy that lies between classes, on the test split, and so of orders 2 to 4; < where it "
        "is within two standard deviations of what shuffled labels give (docs/orders.md)",
    ),
    **{f"order_{p}": _order(p) for p in (2, 3, 4)},
}
# and of what is trained on everything
FINALS: dict[str, Column[Entry]] = {
    "loss": spread(
        "test loss (bits)", "final_loss_bits_mean", ".4f", _of_seeds(final_bits),
        "per label, of networks trained on everything",
    ).noted(_rests_on(_final), lambda entry: {"final_loss_test_error": entry.loss_error}),
    "accuracy": spread(
        "accuracy (%)", "accuracy_mean", ".1f", _of_seeds(lambda result: result.final.accuracy), scale=100
    ),
    "gap": Column(
        "Δ of test loss",
        lambda entry: f"{entry.loss_difference or ''}",
        lambda entry: difference_record("final_gap", entry.loss_difference),
        "to the control's",
    ),
    "below": Column(
        "below control",
        _below,
        _crossings,
        "training size from which the test loss, and epoch from which the best validation loss so far stays below the "
        "control's; a run backfires that ends significantly below it",
    ),
    "fall": Column(
        "sharpest fall (bits)",
        known(lambda result: f"{result.sharp_drop or ''}"),
        _drop,
        f"of the validation loss of the last training within {DROP_WINDOW_EPOCHS} epochs, mean over seeds, and when it "
        "began",
    ),
    "training_loss": spread(
        "training loss", "train_loss_bits_mean", ".4f", _of_seeds(lambda result: result.final.train_loss_bits),
        "on the images without augmentation, at the lowest validation loss, and at the end of training",
    ),
    "end_loss": spread(
        "at the end", "end_train_loss_bits_mean", ".4f", _of_seeds(lambda result: result.final.end_train_loss_bits)
    ),
    "entropy": Column(
        "entropy",
        known(lambda result: f"{result.label_entropy_bits:.4f}" if isinstance(result, TrainedOnce) else ""),
        meaning="of the training labels, the best that a constant predictor can do",
    ),
    "epochs": Column("epochs", known(_epochs)),
    "plateau": Column(PLATEAU, _plateaus, meaning="trainings that the code rests on, and final ones"),
    "untrained": Column(
        "untrained",
        known(lambda result: untrained(result.trainings)),
        meaning="trainings of all whose lowest validation loss is that of the initial weights, which are kept",
    ),
    **GAPS,
    "edit": Column(
        "edit (%)",
        known(lambda result: f"{100 * result.certificate['train'].edit_size:.3g}"),
        lambda entry: {name: _certified("train", name)(entry) for name in ("edit_size", "out_of_range")},
        "share of the variance of the training images that erasing them takes",
    ),
    **ORDERS,
    "parameters": Column(
        "parameters",
        known(lambda result: f"{result.parameters:,}"),
        lambda entry: {
            "parameters": entry.result and entry.result.parameters,
            "seconds": entry.result and entry.result.timing.seconds,
        },
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
