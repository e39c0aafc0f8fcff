"""The tables that `python -m sample_info` and the report show, every column defined once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, Generic, TypeVar

from conf import Options
from erasure.store.storage import write_text
from harness.compare import Grid, Spread
from harness.information import Attribution, ErrorEstimate, Group, ReferenceAgreement, ScoreSummary, SummaryCurves
from harness.labels import spelled
from harness.result import InformationResult
from harness.table import Column, Record, Table, number, spread, word
from sample_info.report.comparison import Agreement, Movement

AGREEMENT = (
    "Pearson's correlation of F-SI over the same examples, seed by seed, mean over seeds; of a run with itself: "
    "between its seeds."
)
_SEEDS = "Mean ± standard deviation over seeds."
_SUMMARIES = (
    "Test accuracy (%) after a fraction of the training examples is removed in order of F-SI: mean over seeds (± "
    "standard deviation over seeds and, for the random order, draws); *: in some summary a class has no example left."
)
_REFERENCES = (
    "Correlation over examples, Pearson's and of ranks (Spearman's), of how far leaving one out moves weights and "
    "predictions (± standard deviation over seeds), and the median of their ratios, with the least and the largest. "
    "Ours, unless it says otherwise, with a reference; influence 10: functions with a damping of 10, the paper's."
)
_ATTRIBUTION = (
    "How well accounts of single examples foresee the network itself, trained again. Datamodeling score: Spearman's "
    "correlation, over trainings on random halves, of a held-out output with what the account adds up to, mean over "
    "outputs and seeds (95 % bootstrap interval over halves and inputs, mean over seeds). Leave-one-out r: Pearson's, "
    "of effects with those of retraining, over examples."
)
_ESTIMATES = (
    "How many scores are wrong by less than a factor of two, by the estimate, over seeds. Where retraining left some "
    "out: Spearman's correlation of the estimate with |log(score / truth)| (± standard deviation over seeds), and how "
    "many of the believed truly are within the factor, of the doubted truly are not. docs/sample_info.md."
)
_MOVEMENTS = "F-SI example by example, mean over seeds."
_AUROC = "AUROC: the probability that an example of the group scores above one of the others; 0.5 is chance."
_FITS = {
    "disjoint": "eraser fitted on other examples",
    "refit": "eraser refitted without each example",
    "scored": "eraser fitted on the scored examples: leaks what is left out",
}
T = TypeVar("T")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A run, by its dataset and model (`row`) and its eraser, and a part of its result by name: what a row shows."""

    row: str
    eraser: str
    result: InformationResult
    name: str
    part: T


def entries(grid: Grid[InformationResult], parts: Callable[[InformationResult], Mapping[str, T]]) -> list[Entry[T]]:
    """Every part of every run's result, row by row of the grid."""
    return [Entry(*run, name, part) for run in grid.runs() for name, part in parts(run[-1]).items()]


def _scores(name: str) -> Callable[[Entry[Any]], list[float]]:
    """Mean over examples of one kind of score, for every seed; of no seed where it was not asked for."""
    return lambda entry: [one.mean_nats for one in entry.result.information.get(name, ())]


def _f_si(value: Callable[[ScoreSummary], float | None]) -> Callable[[Entry[Any]], float]:
    return lambda entry: mean(value(one) or 0.0 for one in entry.result.information["f_si_nats"])


def _accuracy(name: str) -> Callable[[Entry[Any]], float | None]:
    return lambda entry: mean(values) if (values := getattr(entry.result.network, name)) else None


def _classes(entry: Entry[Any]) -> str:
    classes = entry.result.config["sample_info"]["classes"]
    if classes == "all":
        return f"all {entry.result.num_classes}"
    return ", ".join("+".join(map(str, c)) if isinstance(c, list) else str(c) for c in classes)


def _notes(entry: Entry[Any]) -> str:
    """What the eraser was fitted on, how alike seeds are, the score with SGD's noise."""
    notes = [*eraser_note(entry.result.eraser_fit)]
    if entry.result.between_seeds is not None:
        notes.append(f"between seeds: r = {entry.result.between_seeds['pearson']:.2f}")
    if sgd := _scores("si_sgd_nats")(entry):
        notes.append(f"SI with SGD's noise {mean(sgd):.2e}")
    return "; ".join(notes)


def _correlation(heading: str, kind: str, how: str) -> Column[Entry[list[ReferenceAgreement]]]:
    return spread(heading, f"{kind}_{how}", ".3f", lambda entry: [getattr(getattr(p, kind), how) for p in entry.part])


def _interval_record(entry: Entry[list[Attribution]]) -> Record:
    scores = [one.datamodeling for one in entry.part]
    return {f"datamodeling_{end}": mean(getattr(one, end) for one in scores) for end in ("mean", "low", "high")}


def _interval(entry: Entry[list[Attribution]]) -> str:
    return "{:.3f} ({:.3f} to {:.3f})".format(*_interval_record(entry).values())


def _ratio(heading: str, kind: str) -> Column[Entry[list[ReferenceAgreement]]]:
    """Median over examples, mean over seeds, and the range over all; nothing for runs that are older."""

    def record(entry: Entry[list[ReferenceAgreement]]) -> Record:
        known = [ratio for one in entry.part if (ratio := getattr(one, kind).ratio) is not None]
        ends = {"median": mean, "least": min, "largest": max}
        return {f"{kind}_ratio_{e}": over(getattr(r, e) for r in known) if known else None for e, over in ends.items()}

    def text(entry: Entry[list[ReferenceAgreement]]) -> str:
        median, least, largest = record(entry).values()
        return "" if median is None else f"{median:.3g} ({least:.3g} to {largest:.3g})"

    return Column(heading, text, record)


def _share(heading: str, name: str, counts: Callable[[Entry[Any]], tuple[int, int] | None]) -> Column[Entry[Any]]:
    """So many of so many; nothing where neither is known."""

    def record(entry: Entry[Any]) -> Record:
        return dict(zip((name, f"{name}_of"), counts(entry) or (None, None), strict=True))

    return Column(heading, lambda entry: "{:,} of {:,}".format(*found) if (found := counts(entry)) else "", record)


def _sum(entry: Entry[list[ErrorEstimate]], count: Callable[[ErrorEstimate], int | None]) -> int:
    return sum(count(one) or 0 for one in entry.part)


def _believable(entry: Entry[list[ErrorEstimate]]) -> tuple[int, int]:
    return _sum(entry, lambda one: one.believable), entry.result.train_size * len(entry.part)


def _believed(entry: Entry[list[ErrorEstimate]]) -> tuple[int, int] | None:
    """How many are believed rightly, and how many are believed, of those that retraining left out."""
    counts = _sum(entry, lambda one: one.rightly_believed), _sum(entry, lambda one: one.believed)
    return counts if _sum(entry, lambda one: one.retrained) else None


def _doubted(entry: Entry[list[ErrorEstimate]]) -> tuple[int, int] | None:
    retrained = _sum(entry, lambda one: one.retrained)
    doubted = retrained - _sum(entry, lambda one: one.believed)
    return (_sum(entry, lambda one: one.rightly_doubted), doubted) if retrained else None


_SCORES = {"f_si_nats": "F-SI", "si_nats": "SI"}
_EXAMPLE = (
    "what an example tells the network's predictions that the others do not, in nats at noise sigma, over examples"
)
_TOP = "the share of all F-SI that the most informative tenth has"
_STILL = "the share of the first's most informative tenth that is in the second's"
_ROW: Column[Any] = word("dataset · model", "dataset_model", lambda entry: entry.row)
_EXAMPLES = ("examples", "examples", ",")
WHO: Sequence[Column[Entry[Any]]] = (_ROW, word("eraser", "eraser", lambda entry: entry.eraser))
RUN = Column[Entry[Any]]("run", str, lambda entry: {"run_id": entry.result.run_id, "seeds": len(entry.result.seeds)})
RUNS: Sequence[Column[Entry[InformationResult]]] = (
    *WHO,
    word("classes", "classes", _classes),
    number("n", "examples", ",", lambda entry: entry.part.train_size),
    spread("F-SI, mean", "f_si_nats_mean", ".2e", _scores("f_si_nats"), _EXAMPLE),
    number("median", "f_si_nats_median", ".2e", _f_si(lambda one: one.median_nats)),
    number("top tenth", "share_of_top_tenth", ".0%", _f_si(lambda one: one.share_of_top_tenth), _TOP),
    spread("SI, mean", "si_nats_mean", ".2e", _scores("si_nats"), "what it tells the weights"),
    number(
        "accuracy", "test_accuracy", ".1%", _accuracy("test_accuracy"), "of the linearised network, on test examples"
    ),
    number(
        "left out", "left_out_accuracy", ".1%", _accuracy("left_out_accuracy"), "on each example, trained without it"
    ),
    Column("notes", _notes, spread("", "si_sgd_nats_mean", "", _scores("si_sgd_nats")).record),
)
GROUPS: Sequence[Column[Entry[Group]]] = (
    *WHO,
    word("group", "group", lambda entry: entry.name),
    number(*_EXAMPLES, lambda entry: entry.part.examples),
    spread("F-SI, mean", "f_si_nats_mean", ".2e", lambda entry: entry.part.mean_nats),
    spread("AUROC, F-SI", "auroc", ".3f", lambda entry: entry.part.auroc),
    spread("AUROC, SI", "auroc_si", ".3f", lambda entry: entry.part.auroc_si),
)
REFERENCES: Sequence[Column[Entry[list[ReferenceAgreement]]]] = (
    *WHO,
    word("compared", "compared", lambda entry: entry.name),
    number(*_EXAMPLES, lambda entry: entry.part[0].examples),
    _correlation("weights", "weight", "pearson"),
    _correlation("predictions", "prediction", "pearson"),
    _correlation("rank, weights", "weight", "spearman"),
    _correlation("rank, predictions", "prediction", "spearman"),
    _ratio("ratio, weights", "weight"),
    _ratio("ratio, predictions", "prediction"),
)
ATTRIBUTION: Sequence[Column[Entry[list[Attribution]]]] = (
    *WHO,
    word("account", "account", lambda entry: entry.name),
    Column("datamodeling score", _interval, _interval_record),
    spread("leave-one-out r", "leave_one_out", ".3f", lambda entry: [one.leave_one_out for one in entry.part]),
    spread("AUROC, wrong labels", "auroc", ".3f", lambda entry: [one.auroc for one in entry.part]),
)
ESTIMATES: Sequence[Column[Entry[list[ErrorEstimate]]]] = (
    *WHO,
    word("score", "score", lambda entry: _SCORES[entry.name]),
    _share("within a factor of 2, by the estimate", "believable", _believable),
    spread("rank correlation", "spearman", ".3f", lambda entry: [one.spearman for one in entry.part]),
    _share("believed, and truly within", "rightly_believed", _believed),
    _share("doubted, and truly not", "rightly_doubted", _doubted),
)
MOVEMENTS: Sequence[Column[Movement]] = (
    _ROW,
    word("from", "from", lambda moved: moved.before),
    word("to", "to", lambda moved: moved.after),
    number("rank correlation", "spearman", ".3f", lambda moved: moved.spearman, "Spearman's"),
    number("median ratio", "median_ratio", ".3g", lambda moved: moved.median_ratio, "of the second to the first"),
    number("still in the top tenth", "top_tenth_overlap", ".0%", lambda moved: moved.overlap, _STILL),
)


def tables_of(grid: Grid[InformationResult], movements: Sequence[Movement]) -> dict[str, Table]:
    """By title: a row per run; per run and reference, score, account; per pair of erasers; per run and kind."""
    runs, references = entries(grid, lambda result: {"": result}), entries(grid, lambda result: result.references)
    groups = entries(grid, lambda result: result.groups)
    judged = entries(grid, lambda result: result.attribution or {})
    estimates = entries(grid, lambda result: result.error_estimates or {})
    return {
        "Runs": Table.of("sample-info-runs", RUNS, runs, f"{_SEEDS} docs/sample_info.md.", [RUN]),
        "Scores and references": Table.of("sample-info-references", REFERENCES, references, _REFERENCES, [RUN]),
        "Estimated errors of scores": Table.of("sample-info-errors", ESTIMATES, estimates, _ESTIMATES, [RUN]),
        "Accounts judged by retraining": Table.of("sample-info-attribution", ATTRIBUTION, judged, _ATTRIBUTION, [RUN]),
        "How scores move between erasers": Table.of("sample-info-movement", MOVEMENTS, movements, _MOVEMENTS),
        "Groups of examples": Table.of("sample-info-groups", GROUPS, groups, f"{_SEEDS} {_AUROC}", [RUN]),
    }


def agreement_matrix(found: Agreement) -> Table:
    """A row per run: its number, its name, its correlation with every run."""
    rows = [
        [str(i + 1), spelled(name), *("" if value is None else f"{value:.2f}" for value in row)]
        for i, (name, row) in enumerate(zip(found.names, found.correlation, strict=True))
    ]
    headings = ["", spelled(found.eraser), *(str(j + 1) for j in range(len(found.names)))]
    return Table("sample-info-agreement", AGREEMENT, headings, rows)


def summaries_table(result: InformationResult) -> Table:
    """A row per fraction removed, a column per order."""
    found = result.summaries
    assert found is not None
    rows = [[f"{fraction:.0%}"] for fraction in found.removed]
    for order, accuracy in spreads(found).items():
        fewest = [min(seeds) for seeds in zip(*found.classes_left[order], strict=True)]
        for row, shown, classes in zip(rows, accuracy, fewest, strict=True):
            row.append(percent(shown) + ("" if classes == result.num_classes else " *"))
    return Table("", "", ["removed", *(order.replace("_", " ") for order in found.accuracy)], rows)


def all_tables(
    grid: Grid[InformationResult], movements: Sequence[Movement], agreements: Sequence[Agreement]
) -> list[Table]:
    """Those that there is something for: `tables_of`, matrices of agreement, each run's summaries."""
    found = [*tables_of(grid, movements).values(), *map(agreement_matrix, agreements)]
    summaries = [
        replace(
            summaries_table(result), title=f"{spelled(f'{row} · {eraser}')}: summaries, accuracy {accuracy_of(result)}"
        )
        for row, eraser, result in summarised(grid)
    ]
    if summaries:
        summaries[-1] = replace(summaries[-1], caption=_SUMMARIES)
    return [table for table in [*found, *summaries] if table.rows]


def write_tables(shown: Sequence[Table], path: Path) -> Path:
    """As Markdown."""
    parts = [part for table in shown for part in (table.title, table.markdown(), table.caption) if part]
    write_text(path, "\n\n".join(parts) + "\n")
    return path


def summarised(grid: Grid[InformationResult]) -> list[tuple[str, str, InformationResult]]:
    """Runs that have summaries."""
    return [run for run in grid.runs() if run[-1].summaries is not None]


def spreads(found: SummaryCurves) -> dict[str, list[Spread]]:
    """Accuracy by order, for every fraction removed: over seeds, and over draws of the random order."""
    trials = dict(found.accuracy)
    if found.random_draws is not None:
        trials["random"] = [draw for draws in found.random_draws for draw in draws]
    return {order: [Spread.of(values) for values in zip(*curves, strict=True)] for order, curves in trials.items()}


def whose(found: SummaryCurves, config: Options) -> str:
    """Whose accuracy a run's summaries are about, in words."""
    if found.network == "linearized":
        return "of the linearised network"
    options = config["sample_info"]
    grouped = isinstance(options["summaries"], Mapping)  # as they are now
    model = options["summaries"]["model"] if grouped else options["summary_model"]
    changed = ", ".join(f"{key}={value}" for key, value in (model or {}).items())
    return f"of the network trained again{f' ({changed})' if changed else ''}"


def accuracy_of(result: InformationResult) -> str:
    """Of whom the summaries of a run say it, and whether the eraser has seen the examples."""
    assert result.summaries is not None
    return "; ".join([whose(result.summaries, result.config), *eraser_note(result.eraser_fit)])


def eraser_note(fit: str | None) -> list[str]:
    """Whether the eraser has seen the examples that are left out; nothing for the control, and for older runs."""
    return [] if fit is None else [_FITS[fit]]


def percent(accuracy: Spread) -> str:
    """Of a share between 0 and 1."""
    std = None if accuracy.std is None else 100 * accuracy.std
    return f"{Spread(100 * accuracy.mean, std):.1f}"
