"""The tables of `python -m sample_info` and of the report; every column is defined once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import mean
from typing import Any, Generic, TypeVar

from harness.information import Attribution, ErrorEstimate, Group, ReferenceAgreement, ScoreSummary
from harness.result import InformationResult
from harness.results.arrange import Comparison
from harness.results.labels import Label
from harness.results.statistics import Spread, deviation_over, seeds_text
from harness.results.table import Column, Table, number, spread, word
from sample_info.report.comparison import Movement, movement_table
from sample_info.report.summaries import eraser_note

SCORES = {"f_si_nats": "F-SI", "si_nats": "SI", "si_sgd_nats": "SI, SGD"}
_REFERENCES = (
    "Correlation over examples, Pearson's and of ranks (Spearman's), of how far leaving one out moves weights and "
    "predictions, and the median of their ratios, with the least and the largest. "
    "Ours, unless it says otherwise, with a reference; influence 10: functions with a damping of 10, the paper's."
)
_ATTRIBUTION = (
    "How well methods of single examples foresee the network itself, trained again. Datamodeling score: Spearman's "
    "correlation, over trainings on random halves, of a held-out output with what the method adds up to, mean over "
    "outputs and seeds (95 % bootstrap interval over halves and inputs, mean over seeds). Leave-one-out r: Pearson's, "
    "of effects with those of retraining, over examples."
)
_ESTIMATES = (
    "How many scores are wrong by less than a factor of two, by the estimate, over seeds. Where retraining left some "
    "out: Spearman's correlation of the estimate with |log(score / truth)|, and how many of the believed truly are "
    "within the factor, of the doubted truly are not. docs/sample_info.md."
)
_AUROC = "AUROC: the probability that an example of the group scores above one of the others; 0.5 is chance."
T = TypeVar("T")
Parts = Callable[[InformationResult], Mapping[str, T] | None]  # of a run's result, by name


@dataclass(frozen=True)
class ResultPart(Generic[T]):
    """A row of a table: a run, labelled by dataset and model (`row`) and eraser, and a named part of its result."""

    row: Label
    eraser: Label
    result: InformationResult
    name: str
    part: T


def _scores(name: str) -> Callable[[ResultPart[Any]], list[float]]:
    """Mean over examples of one kind of score, for every seed; of no seed where it was not asked for."""
    return lambda entry: [one.mean_nats for one in entry.result.information.get(name, ())]


def headline(result: InformationResult) -> str:
    """Return a run's mean score, and what a single score is to be compared with: the total and the median."""
    scores = result.information["f_si_nats"]
    mean_nats = Spread.of([one.mean_nats for one in scores])
    shares = [one.share_of_top_tenth for one in scores if one.share_of_top_tenth is not None]
    compared = [f"the top tenth of the examples has {mean(shares):.0%} of the total"] if shares else []
    if (ratio := _largest_over_median(result)) is not None:
        compared.append(f"the largest is {ratio:,.0f} times the median")
    said = f"{mean_nats:.2e} nats of F-SI per example, {seeds_text(len(result.seeds))}"
    return f"{said}; {', '.join(compared)}" if compared else said


def _largest_over_median(result: InformationResult) -> float | None:
    """Mean over seeds; None where a median is zero."""
    scores = result.information["f_si_nats"]
    return mean(one.largest_nats / one.median_nats for one in scores) if all(s.median_nats for s in scores) else None


def _f_si(value: Callable[[ScoreSummary], float | None]) -> Callable[[ResultPart[Any]], float]:
    return lambda entry: mean(value(one) or 0.0 for one in entry.result.information["f_si_nats"])


def _accuracy(heading: str, name: str, meaning: str) -> Column[ResultPart[Any]]:
    def value(entry: ResultPart[Any]) -> float | None:
        return mean(values) if (values := getattr(entry.result.network, name)) else None

    return number(heading, name, ".1%", value, meaning)


def _classes(entry: ResultPart[Any]) -> str:
    classes = entry.result.config["sample_info"].get("classes", "all")
    if not isinstance(classes, list):
        return f"{classes} {entry.result.num_classes}"
    return ", ".join("+".join(map(str, c)) if isinstance(c, list) else str(c) for c in classes)


def _notes(entry: ResultPart[Any]) -> str:
    """Return notes: what the eraser was fitted on, correlation between seeds, the score with SGD's noise."""
    notes = [*eraser_note(entry.result.eraser_fit)]
    if (between := (entry.result.between_seeds or {}).get("pearson")) is not None:
        notes.append(f"between seeds: r = {between:.2f}")
    if sgd := _scores("si_sgd_nats")(entry):
        notes.append(f"SI with SGD's noise {mean(sgd):.2e}")
    return "; ".join(notes)


def _each(heading: str, name: str, value: str) -> Column[ResultPart[Any]]:
    """Return a column of the attribute `value` of every seed's part."""
    return spread(heading, name, ".3f", lambda entry: map(attrgetter(value), entry.part))


def _several(
    heading: str, names: Sequence[str], form: str, values: Callable[[ResultPart[list[T]]], Sequence[float]]
) -> Column[ResultPart[list[T]]]:
    """Numbers that are read together; nothing where there are none."""
    return Column(
        heading,
        lambda entry: form.format(*found) if (found := values(entry)) else "",
        lambda entry: dict(zip(names, values(entry) or [None] * len(names), strict=True)),
    )


def _range(
    heading: str, name: str, form: str, ends: Mapping[str, Callable[[Iterable[float]], float]], value: str
) -> Column[ResultPart[Any]]:
    """Return a column of a middle, the least and the most over seeds of the attribute `value`; some runs have none."""

    def values(entry: ResultPart[Any]) -> list[float]:
        known = [found for one in entry.part if (found := attrgetter(value)(one)) is not None]
        return [over(getattr(found, end) for found in known) for end, over in ends.items()] if known else []

    return _several(heading, [f"{name}_{end}" for end in ends], f"{{:{form}}} ({{:{form}}} to {{:{form}}})", values)


def _share(
    heading: str, name: str, counts: Callable[[ErrorEstimate, int], tuple[int | None, int | None]]
) -> Column[ResultPart[list[ErrorEstimate]]]:
    """Return a column of counts and totals, added up over seeds; empty where retraining left none out."""

    def values(entry: ResultPart[list[ErrorEstimate]]) -> list[int]:
        every = zip(*(counts(one, entry.result.train_size) for one in entry.part), strict=True)
        return [sum(known) for column in every if (known := [count for count in column if count is not None])]

    return _several(heading, (name, f"{name}_of"), "{:,} of {:,}", values)


_EXAMPLE = (
    "what an example tells the network's predictions that the others do not, in nats at noise sigma, over examples"
)
_TOP = "the share of all F-SI that the most informative tenth has"
WHO: Sequence[Column[ResultPart[Any]]] = (
    word("dataset · model", "dataset_model", lambda entry: entry.row),
    word("eraser", "eraser", lambda entry: entry.eraser),
)
SEEDS = Column[ResultPart[Any]]("seeds", lambda entry: f"{len(entry.result.seeds)}")
RUN = Column[ResultPart[Any]](
    "run", str, lambda entry: {"run_id": entry.result.run_id, "seeds": len(entry.result.seeds)}
)
RUNS: Sequence[Column[ResultPart[InformationResult]]] = (
    word("classes", "classes", _classes),
    SEEDS,
    number("n", "examples", ",", lambda entry: entry.part.train_size),
    spread("F-SI, mean", "f_si_nats_mean", ".2e", _scores("f_si_nats"), _EXAMPLE),
    number("median", "f_si_nats_median", ".2e", _f_si(lambda one: one.median_nats)),
    number("top tenth", "share_of_top_tenth", ".0%", _f_si(lambda one: one.share_of_top_tenth), _TOP),
    number("largest / median", "largest_over_median", ",.0f", lambda entry: _largest_over_median(entry.result)),
    spread("SI, mean", "si_nats_mean", ".2e", _scores("si_nats"), "what it tells the weights"),
    _accuracy("accuracy", "test_accuracy", "of the linearised network, on test examples"),
    _accuracy("left out", "left_out_accuracy", "on each example, trained without it"),
    Column("notes", _notes, spread("", "si_sgd_nats_mean", "", _scores("si_sgd_nats")).record),
)
GROUPS: Sequence[Column[ResultPart[Group]]] = (
    word("group", "group", lambda entry: entry.name),
    number("examples", "examples", ",", lambda entry: entry.part.examples),
    spread("F-SI, mean", "f_si_nats_mean", ".2e", lambda entry: entry.part.mean_nats),
    spread("AUROC, F-SI", "auroc", ".3f", lambda entry: entry.part.auroc),
    spread("AUROC, SI", "auroc_si", ".3f", lambda entry: entry.part.auroc_si),
)
_ENDS = {"median": mean, "least": min, "largest": max}  # of ratios: the median over examples, its mean over seeds
REFERENCES: Sequence[Column[ResultPart[list[ReferenceAgreement]]]] = (
    word("compared", "compared", lambda entry: entry.name),
    number("examples", "examples", ",", lambda entry: entry.part[0].examples),
    _each("weights", "weight_pearson", "weight.pearson"),
    _each("predictions", "prediction_pearson", "prediction.pearson"),
    _each("rank, weights", "weight_spearman", "weight.spearman"),
    _each("rank, predictions", "prediction_spearman", "prediction.spearman"),
    _range("ratio, weights", "weight_ratio", ".3g", _ENDS, "weight.ratio"),
    _range("ratio, predictions", "prediction_ratio", ".3g", _ENDS, "prediction.ratio"),
)
ATTRIBUTION: Sequence[Column[ResultPart[list[Attribution]]]] = (
    word("method", "method", lambda entry: entry.name),
    _range("datamodeling score", "datamodeling", ".3f", dict.fromkeys(("mean", "low", "high"), mean), "datamodeling"),
    _each("leave-one-out r", "leave_one_out", "leave_one_out"),
    _each("AUROC, wrong labels", "auroc", "auroc"),
)
ESTIMATES: Sequence[Column[ResultPart[list[ErrorEstimate]]]] = (
    word("score", "score", lambda entry: SCORES.get(entry.name, entry.name)),
    _share("within a factor of 2, by the estimate", "believable", lambda one, n: (one.believable, n)),
    _each("rank correlation", "spearman", "spearman"),
    _share("believed, and truly within", "rightly_believed", lambda one, _: (one.rightly_believed, one.believed)),
    _share(
        "doubted, and truly not",
        "rightly_doubted",
        lambda one, _: (one.rightly_doubted, one.retrained and one.retrained - (one.believed or 0)),
    ),
)


def tables_of(comparison: Comparison, movements: Sequence[Movement]) -> dict[str, Table]:
    """Return tables by title, with a row per run, score, pair of erasers or subgroup."""

    def table(kind: str, columns: Sequence[Column[ResultPart[T]]], caption: str, parts: Parts[T]) -> Table:
        runs = comparison.information
        entries = [ResultPart(*run, name, part) for run in runs for name, part in (parts(run[-1]) or {}).items()]
        over = deviation_over(len(entry.result.seeds) for entry in entries)
        whole = " ".join([*([caption] if caption else []), *([f"{over}."] if over else [])])
        return Table.of(f"sample-info-{kind}", [*WHO, *columns], entries, whole, [RUN])

    return {
        "Runs": table("runs", RUNS, "docs/sample_info.md.", lambda result: {"": result}),
        "Scores and references": table("references", REFERENCES, _REFERENCES, attrgetter("references")),
        "Estimated errors of scores": table("errors", ESTIMATES, _ESTIMATES, attrgetter("error_estimates")),
        "Attribution methods judged by retraining": table(
            "attribution", ATTRIBUTION, _ATTRIBUTION, attrgetter("attribution")
        ),
        "How scores move between erasers": movement_table(movements),
        "Subgroups of examples": table("groups", GROUPS, _AUROC, attrgetter("groups")),
    }
