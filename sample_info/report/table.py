"""The tables that `python -m sample_info` and the report show, every column defined once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, Generic, TypeVar

from conf import Options
from erasure.store.storage import write_text
from harness.compare import Grid, Spread
from harness.result import Group, InformationResult, Ratio, ReferenceAgreement, SummaryCurves
from harness.table import Column, Record, Table
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


def _word(heading: str, name: str, text: Callable[[T], str]) -> Column[T]:
    return Column(heading, text, lambda entry: {name: text(entry)}, menu=True)


def _number(heading: str, name: str, form: str, value: Callable[[T], float | None], meaning: str = "") -> Column[T]:
    """Nothing where it is not known, as in runs that are older than the number."""

    def text(entry: T) -> str:
        return "" if (number := value(entry)) is None else format(number, form)

    return Column(heading, text, lambda entry: {name: value(entry)}, meaning)


def _spread(
    heading: str, name: str, form: str, values: Callable[[T], Iterable[float | None]], meaning: str = ""
) -> Column[T]:
    """Mean ± standard deviation over the seeds that have it."""

    def spread(entry: T) -> Spread | None:
        known = [value for value in values(entry) if value is not None]
        return Spread.of(known) if known else None

    def record(entry: T) -> Record:
        found = spread(entry)
        return {name: found and found.mean, f"{name.removesuffix('_mean')}_std": found and found.std}

    return Column(heading, lambda entry: f"{found:{form}}" if (found := spread(entry)) else "", record, meaning)


def _scores(name: str) -> Callable[[Entry[Any]], list[float]]:
    """Mean over examples of one kind of score, for every seed; of no seed where it was not asked for."""
    return lambda entry: [one.mean_nats for one in entry.result.information.get(name, ())]


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
    return _spread(heading, f"{kind}_{how}", ".3f", lambda entry: [getattr(getattr(p, kind), how) for p in entry.part])


def _ratio(heading: str, kind: str) -> Column[Entry[list[ReferenceAgreement]]]:
    """Median over examples, mean over seeds, and the range over all; nothing for runs that are older."""

    def known(entry: Entry[list[ReferenceAgreement]]) -> Ratio | None:
        found = [ratio for one in entry.part if (ratio := getattr(one, kind).ratio) is not None]
        if not found:
            return None
        least, largest = min(one.least for one in found), max(one.largest for one in found)
        return Ratio(median=mean(one.median for one in found), least=least, largest=largest)

    def text(entry: Entry[list[ReferenceAgreement]]) -> str:
        found = known(entry)
        return f"{found.median:.3g} ({found.least:.3g} to {found.largest:.3g})" if found else ""

    def record(entry: Entry[list[ReferenceAgreement]]) -> Record:
        found = known(entry)
        return {f"{kind}_ratio_{end}": found and getattr(found, end) for end in ("median", "least", "largest")}

    return Column(heading, text, record)


_ROW: Column[Any] = _word("dataset · model", "dataset_model", lambda entry: entry.row)
WHO: Sequence[Column[Entry[Any]]] = (_ROW, _word("eraser", "eraser", lambda entry: entry.eraser))
RUN = Column[Entry[Any]]("run", str, lambda entry: {"run_id": entry.result.run_id, "seeds": len(entry.result.seeds)})
RUNS: Sequence[Column[Entry[InformationResult]]] = (
    *WHO,
    _word("classes", "classes", _classes),
    _number("n", "examples", ",", lambda entry: entry.part.train_size),
    _spread(
        "F-SI, mean",
        "f_si_nats_mean",
        ".2e",
        _scores("f_si_nats"),
        "what an example tells the network's predictions that the others do not, in nats at noise sigma, over examples",
    ),
    _number(
        "median", "f_si_nats_median", ".2e", lambda e: mean(one.median_nats for one in e.part.information["f_si_nats"])
    ),
    _number(
        "top tenth",
        "share_of_top_tenth",
        ".0%",
        lambda entry: mean(one.share_of_top_tenth or 0.0 for one in entry.part.information["f_si_nats"]),
        "the share of all F-SI that the most informative tenth has",
    ),
    _spread("SI, mean", "si_nats_mean", ".2e", _scores("si_nats"), "what it tells the weights"),
    _number(
        "accuracy", "test_accuracy", ".1%", _accuracy("test_accuracy"), "of the linearised network on test examples"
    ),
    _number(
        "left out",
        "left_out_accuracy",
        ".1%",
        _accuracy("left_out_accuracy"),
        "on each training example, once trained without it",
    ),
    Column("notes", _notes, _spread("", "si_sgd_nats_mean", "", _scores("si_sgd_nats")).record),
)
GROUPS: Sequence[Column[Entry[Group]]] = (
    *WHO,
    _word("group", "group", lambda entry: entry.name),
    _number("examples", "examples", ",", lambda entry: entry.part.examples),
    _spread("F-SI, mean", "f_si_nats_mean", ".2e", lambda entry: entry.part.mean_nats),
    _spread("AUROC, F-SI", "auroc", ".3f", lambda entry: entry.part.auroc),
    _spread("AUROC, SI", "auroc_si", ".3f", lambda entry: entry.part.auroc_si),
)
REFERENCES: Sequence[Column[Entry[list[ReferenceAgreement]]]] = (
    *WHO,
    _word("compared", "compared", lambda entry: entry.name),
    _number("examples", "examples", ",", lambda entry: entry.part[0].examples),
    _correlation("weights", "weight", "pearson"),
    _correlation("predictions", "prediction", "pearson"),
    _correlation("rank, weights", "weight", "spearman"),
    _correlation("rank, predictions", "prediction", "spearman"),
    _ratio("ratio, weights", "weight"),
    _ratio("ratio, predictions", "prediction"),
)
MOVEMENTS: Sequence[Column[Movement]] = (
    _ROW,
    _word("from", "from", lambda moved: moved.before),
    _word("to", "to", lambda moved: moved.after),
    _number("rank correlation", "spearman", ".3f", lambda moved: moved.spearman, "Spearman's"),
    _number("median ratio", "median_ratio", ".3g", lambda moved: moved.median_ratio, "of the second to the first"),
    _number(
        "still in the top tenth",
        "top_tenth_overlap",
        ".0%",
        lambda moved: moved.overlap,
        "the share of the first's most informative tenth that is in the second's",
    ),
)


def runs_table(grid: Grid[InformationResult]) -> Table:
    """A row per run."""
    found = entries(grid, lambda result: {"": result})
    return Table.of("sample-info-runs", RUNS, found, f"{_SEEDS} docs/sample_info.md.", also=[RUN])


def groups_table(grid: Grid[InformationResult]) -> Table:
    """A row per run and kind of example."""
    caption = (
        f"{_SEEDS} AUROC: the probability that an example of the group scores above one of the others; 0.5 is chance."
    )
    return Table.of("sample-info-groups", GROUPS, entries(grid, lambda result: result.groups), caption, also=[RUN])


def references_table(grid: Grid[InformationResult]) -> Table:
    """A row per run and comparison."""
    caption = (
        "Correlation over examples, Pearson's and of ranks (Spearman's), of how far leaving one out moves weights and "
        "predictions (± standard deviation over seeds), and the median of their ratios, with the least and the "
        "largest. Ours, unless it says otherwise, with a reference; influence 10: functions with a damping of 10, the "
        "paper's."
    )
    found = entries(grid, lambda result: result.references)
    return Table.of("sample-info-references", REFERENCES, found, caption, also=[RUN])


def movements_table(found: Sequence[Movement]) -> Table:
    """A row per pair of erasers."""
    return Table.of("sample-info-movement", MOVEMENTS, found, "F-SI example by example, mean over seeds.")


def agreement_matrix(found: Agreement) -> Table:
    """A row per run: its number, its name, its correlation with every run."""
    rows = [
        [str(i + 1), name, *("" if value is None else f"{value:.2f}" for value in row)]
        for i, (name, row) in enumerate(zip(found.names, found.correlation, strict=True))
    ]
    headings = ["", found.eraser, *(str(j + 1) for j in range(len(found.names)))]
    return Table("sample-info-agreement", AGREEMENT, headings, rows)


def summaries_table(result: InformationResult) -> Table:
    """A row per fraction removed, a column per order."""
    found = result.summaries
    assert found is not None
    rows = [[f"{fraction:.0%}"] for fraction in found.removed]
    for order, accuracy in spreads(found).items():
        fewest = [min(seeds) for seeds in zip(*found.classes_left[order], strict=True)]
        for row, spread, classes in zip(rows, accuracy, fewest, strict=True):
            row.append(percent(spread) + ("" if classes == result.num_classes else " *"))
    return Table("", "", ["removed", *(order.replace("_", " ") for order in found.accuracy)], rows)


def all_tables(
    grid: Grid[InformationResult], movements: Sequence[Movement], agreements: Sequence[Agreement]
) -> list[tuple[str, Table]]:
    """With titles where they have some: runs; groups, references, movements, agreement and summaries, if any."""
    found = [runs_table(grid), groups_table(grid), references_table(grid), movements_table(movements)]
    tables = [("", table) for table in [*found, *map(agreement_matrix, agreements)] if table.rows]
    for row, eraser, result in summarised(grid):
        accuracy = "; ".join([whose(result.config), *eraser_note(result.eraser_fit)])
        tables.append((f"{row} · {eraser}: summaries, accuracy {accuracy}", summaries_table(result)))
    if tables[-1][0]:
        tables[-1] = (tables[-1][0], replace(tables[-1][1], caption=_SUMMARIES))
    return tables


def write_tables(shown: Sequence[tuple[str, Table]], path: Path) -> Path:
    """As Markdown."""
    parts = [part for title, table in shown for part in (title, table.markdown(), table.caption) if part]
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


def whose(config: Options) -> str:
    """Whose accuracy a run's summaries are about, in words."""
    section = config["sample_info"]
    if isinstance(section["summaries"], Mapping):
        network, model = section["summaries"]["network"], section["summaries"]["model"]
    else:  # before options were grouped
        network, model = section["summary_network"], section["summary_model"]
    if network == "linearized":
        return "of the linearised network"
    changed = ", ".join(f"{key}={value}" for key, value in (model or {}).items())
    return f"of the network trained again{f' ({changed})' if changed else ''}"


def eraser_note(fit: str | None) -> list[str]:
    """Whether the eraser has seen the examples that are left out; nothing for the control, and for older runs."""
    return [] if fit is None else [_FITS[fit]]


def percent(accuracy: Spread) -> str:
    """Of a share between 0 and 1."""
    std = None if accuracy.std is None else 100 * accuracy.std
    return f"{Spread(100 * accuracy.mean, std):.1f}"
