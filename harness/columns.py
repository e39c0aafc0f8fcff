"""What tables say of trained runs beside their controls: every column, defined once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

from harness.backfire import Backfire, backfire
from harness.compare import (
    DIFFERENCES,
    PLATEAU,
    PLATEAU_CAPTION,
    Difference,
    Grid,
    Spread,
    difference_record,
    differences,
    paired_difference,
)
from harness.example_bits import final_difference, known_bits, loss_error
from harness.loss_curves import DROP_WINDOW_EPOCHS
from harness.result import Coded, TrainedOnce, TrainedResult, stuck
from harness.run import curves_of
from harness.table import Column, Record

Values = Callable[[TrainedResult], Sequence[float] | None]  # per seed; None where a result has none

MARKS = f"Mean ± standard deviation over seeds. {DIFFERENCES} {PLATEAU_CAPTION}"


@dataclass(frozen=True)
class Beside:
    """A run, or several of different seeds as one result, and how it stands to its row's control.

    Attributes:
        row: what it shares with the control.
        eraser: what it does not.
        result: None where there is none, which `lacks` explains.
        lacks: what makes it incomplete.
        code: difference of the codelength; None for the control, and without one.
        paper: the same in Table 16's unit.
        loss: where it falls below the control, and the difference of the final loss.
        loss_error: standard error of the final loss over test examples.
        run_ids: of all that is in it.
    """

    row: str
    eraser: str
    result: TrainedResult | None
    lacks: str = ""
    code: Difference | None = None
    paper: Difference | None = None
    loss: Backfire | None = None
    loss_error: float | None = None
    run_ids: Sequence[str] = ()


def beside_controls(grid: Grid) -> dict[tuple[str, str], Beside]:
    """All runs of a grid by row and column; p-values are corrected for all their differences together."""
    codes = all(isinstance(result, Coded) for *_, result in grid.runs())
    found = differences(grid, {"loss": final_difference} | ({"code": code_difference} if codes else {}))
    entries = {}
    for row in grid.rows:
        control = grid.control(row)
        for column in grid.columns:
            result, gap = grid.cells[row].get(column), found.get((row, column, "loss"))
            if result is None:
                entries[row, column] = Beside(row, column, None, "not run")
                continue
            against = None
            if gap is not None and control is not None:
                against = backfire(result, control, gap, curves_of(result), curves_of(control))
            entries[row, column] = Beside(
                row,
                column,
                result,
                code=found.get((row, column, "code")),
                loss=against,
                loss_error=loss_error(known_bits(result), result.seeds),
                run_ids=[result.run_id],
            )
    return entries


def code_difference(result: TrainedResult, control: TrainedResult) -> Difference:
    """Of the codelength, in bits per label, of two runs of the same seeds."""
    assert isinstance(result, Coded)
    assert isinstance(control, Coded)
    return paired_difference(result.mdl.bits_per_sample, control.mdl.bits_per_sample)


def known(show: Callable[[TrainedResult], str]) -> Callable[[Beside], str]:
    """Text of a result; nothing where there is none."""
    return lambda entry: "" if entry.result is None else show(entry.result)


def coding(entry: Beside) -> str:
    """How many of the trainings that the codelength rests on never left the plateau."""
    return stuck(entry.result.coding) if entry.result else ""


def final(entry: Beside) -> str:
    """The same of the last trainings, which the final loss is of."""
    return stuck(entry.result.trainings[-1:]) if entry.result else ""


def everywhere(entry: Beside) -> str:
    return stuck(entry.result.trainings) if entry.result else ""


def _spread(
    heading: str,
    name: str,
    values: Values,
    *,
    form: str = ".3f",
    scale: float = 1,
    marks: Callable[[Beside], str] | None = None,
    more: Callable[[Beside], Record] = lambda _: {},
    meaning: str = "",
) -> Column[Beside]:
    """Mean ± standard deviation over seeds; with `marks`, on what trainings it rests, and what is missing."""

    def spread(entry: Beside) -> Spread | None:
        numbers = values(entry.result) if entry.result is not None else None
        return Spread.of([scale * number for number in numbers]) if numbers else None

    def text(entry: Beside) -> str:
        shown = spread(entry)
        marked = (
            [f"{mark}{count}" for mark, count in (("‡", marks(entry)), ("†", entry.lacks)) if count] if marks else []
        )
        return " ".join([*([format(shown, form)] if shown else []), *marked])

    def record(entry: Beside) -> Record:
        numbers = values(entry.result) if entry.result is not None else None
        found = Spread.of(numbers) if numbers else None
        return {f"{name}_mean": found and found.mean, f"{name}_std": found and found.std, **more(entry)}

    return Column(heading, text, record, meaning)


def code_bits(result: TrainedResult) -> Sequence[float] | None:
    """Codelength per label by seed; None without one."""
    return result.mdl.bits_per_sample if isinstance(result, Coded) else None


def code_paper(result: TrainedResult) -> Sequence[float] | None:
    """The same in Table 16's unit."""
    return result.mdl.paper if isinstance(result, Coded) else None


def final_bits(result: TrainedResult) -> Sequence[float]:
    """Loss per label on the test split, trained on everything, by seed."""
    return result.final.loss_bits


def _below(entry: Beside) -> str:
    if entry.loss is None:
        return ""
    size, epoch = entry.loss.size, entry.loss.epoch
    where = [*([f"n = {size:,}"] if size is not None else []), *([f"epoch {epoch}"] if epoch is not None else [])]
    return ", ".join([f"from {' and '.join(where)}" if where else "no", *["backfires"] * entry.loss.backfires])


def _crossings(entry: Beside) -> Record:
    found = entry.loss
    return {
        "backfires": found and found.backfires,
        "crossing_size": found and found.size,
        "crossing_epoch": found and found.epoch,
    }


def _drop(entry: Beside) -> Record:
    drop = entry.result.sharp_drop if entry.result else None
    return {"sharp_drop_bits": drop and mean(drop.bits), "sharp_drop_epoch": drop and drop.mean_epoch}


def _gaps(split: str) -> Callable[[TrainedResult], str]:
    def text(result: TrainedResult) -> str:
        certificate = result.certificate[split]
        return f"{certificate.mean_gap:.0e}, {certificate.covariance_gap:.0e}"

    return text


def _certificate(entry: Beside) -> Record:
    keys, found = ("mean_gap", "covariance_gap", "edit_size", "out_of_range"), entry.result
    return {key: getattr(found.certificate["train"], key) if found else None for key in keys}


def _epochs(result: TrainedResult) -> str:
    epochs = result.trainings[-1].epochs
    return f"{min(epochs)}" if min(epochs) == max(epochs) else f"{min(epochs)}–{max(epochs)}"


def _plateaus(entry: Beside) -> str:
    both = (coding(entry), "coding"), (final(entry), "final")
    return ", ".join(f"{count} {which}" for count, which in both if count)


ROW = Column[Beside]("dataset · model", lambda entry: entry.row, lambda entry: {"model": entry.row}, menu=True)
ERASER = Column[Beside]("eraser", lambda entry: entry.eraser, lambda entry: {"eraser": entry.eraser}, menu=True)
RUNS = Column[Beside](
    "runs",
    lambda entry: " ".join(entry.run_ids),
    lambda entry: {
        "run_ids": " ".join(entry.run_ids),
        "seeds": len(entry.result.seeds) if entry.result else 0,
        "incomplete": entry.lacks,
        "bits_per_sample_on_plateau": coding(entry),
        "paper_on_plateau": everywhere(entry) if isinstance(entry.result, Coded) else "",
        "loss_bits_on_plateau": final(entry),
    },
)
CODE = _spread(
    "bits per label",
    "bits_per_label",
    code_bits,
    marks=coding,
    meaning="prequential codelength (a model at chance needs log2 k)",
)
DELTA = Column[Beside](
    "Δ to control",
    lambda entry: f"{entry.code or ''}",
    lambda entry: (
        difference_record("difference", entry.code, "bits_per_label")
        | {"significant": entry.code and entry.code.significant}
    ),
    "of the codelength; no test example enters it",
)
PAPER = _spread("Σ n·CE / N", "paper_units", code_paper, marks=everywhere)
PAPER_DELTA = Column[Beside](
    "Δ to control",
    lambda entry: f"{entry.paper or ''}",
    lambda entry: (
        difference_record("difference", entry.paper, "paper_units")
        | {"significant": entry.paper and entry.paper.significant}
    ),
)
LOSS = _spread(
    "test loss (bits)",
    "final_loss_bits",
    final_bits,
    form=".4f",
    marks=final,
    more=lambda entry: {"final_loss_test_error": entry.loss_error},
    meaning="per label, trained on everything",
)
ACCURACY = _spread("accuracy (%)", "accuracy", lambda result: result.final.accuracy, form=".1f", scale=100)
TRAINING_LOSS = _spread(
    "training loss",
    "train_loss_bits",
    lambda result: result.final.train_loss_bits,
    form=".4f",
    meaning="on the images without augmentation, at the lowest validation loss, and at the end of training",
)
END_LOSS = _spread("at the end", "end_train_loss_bits", lambda result: result.final.end_train_loss_bits, form=".4f")
ENTROPY = Column[Beside](
    "entropy",
    known(lambda result: f"{result.label_entropy_bits:.4f}" if isinstance(result, TrainedOnce) else ""),
    meaning="of the training labels, the best that a constant predictor can do",
)
EPOCHS = Column[Beside]("epochs", known(_epochs))
GAP = Column[Beside](
    "Δ of test loss",
    lambda entry: f"{entry.loss.gap if entry.loss else ''}",
    lambda entry: difference_record("final_gap", entry.loss.gap if entry.loss else None),
    "to the control's",
)
BELOW = Column[Beside](
    "below control",
    _below,
    _crossings,
    "training size from which the test loss, and epoch from which the best validation loss so far stays below the "
    "control's; a run backfires that ends significantly below it",
)
FALL = Column[Beside](
    "sharpest fall (bits)",
    known(lambda result: f"{result.sharp_drop or ''}"),
    _drop,
    f"of the validation loss of the last training within {DROP_WINDOW_EPOCHS} epochs, mean over seeds, and when it "
    "began",
)
STUCK = Column[Beside](PLATEAU, _plateaus, meaning="trainings that the code rests on, and final ones")
GAPS = Column[Beside](
    "gaps left",
    known(_gaps("train")),
    _certificate,
    "between class means, and between class covariances, relative, on the training split: no promise goes further",
)
TEST_GAPS = Column[Beside]("on the test split", known(_gaps("test")), meaning="the same, under the same map")
COST = Column[Beside](
    "parameters",
    known(lambda result: f"{result.parameters:,}"),
    lambda entry: {
        "parameters": entry.result and entry.result.parameters,
        "seconds": entry.result and entry.result.timing.seconds,
    },
)
