"""The tables of `python -m sample_info` and of the report: runs, their examples under several erasers and networks.

How scores agree between networks: Harutyunyan et al. 2021, appendix A.4, figure 5.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations, combinations_with_replacement
from operator import attrgetter
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from conf import Options
from erasure.store.regular import DamagedFileError
from erasure.store.storage import digest, fingerprint
from harness.example_bits import read_stored
from harness.information import ErrorEstimate, ScoreSummary, SummaryCurves
from harness.result import InformationResult
from harness.results.arrange import Comparison, comparable
from harness.results.labels import Label
from harness.results.statistics import Spread, deviation_over, seeds_text
from harness.results.table import Column, Record, Table, number, spread, word
from sample_info.agreement import pearson, spearman

MAX_RUNS = 30  # of which the agreement is shown


@dataclass(frozen=True)
class RunScores:
    """A run's examples as it has stored them: places in the training split, given labels, [n], F-SI by seed [S, n]."""

    index: Tensor
    given_label: Tensor
    f_si_nats: Tensor


Stored = Mapping[str, RunScores | None]  # by run id; None for a run that cannot be compared


def read_scores(directory: Path, problems: list[str], seeds: Sequence[int] | None = None) -> RunScores | None:
    """Read what the run in a directory has stored; None where that is nothing, or damaged.

    Args:
        directory: the run's.
        problems: gets a line on a file that is damaged.
        seeds: the run's, where they are known.
    """
    names = "index", "given_label", "f_si_nats"
    try:
        stored = read_stored(directory / "scores.safetensors", names[:2], names[2:])
        if stored is not None and seeds is not None and list(stored.seeds) != list(seeds):
            raise DamagedFileError(f"{directory / 'scores.safetensors'} is of the seeds {stored.seeds}, not the run's")
    except DamagedFileError as error:
        problems.append(f"{error}: left out of how scores move and agree")
        return None
    return stored and RunScores(*(stored.tensors[name] for name in names))


@dataclass(frozen=True)
class Movement:
    """F-SI of the same examples under two erasers of a row, nats, mean over seeds, [n] each."""

    row: Label
    before: Label
    after: Label
    first: Tensor
    second: Tensor

    @cached_property
    def spearman(self) -> float | None:
        """Rank correlation."""
        return spearman(self.first, self.second)

    @property
    def median_ratio(self) -> float:
        """Median ratio of the second score to the first, over examples with a first score above zero."""
        some = self.first > 0
        return float((self.second[some] / self.first[some]).median()) if bool(some.any()) else float("nan")

    @property
    def overlap(self) -> float:
        """Share of the first's most informative tenth that is in the second's."""
        tenth = max(1, len(self.first) // 10)
        tops = [set(scores.argsort(descending=True)[:tenth].tolist()) for scores in (self.first, self.second)]
        return len(tops[0] & tops[1]) / tenth


def movements(comparison: Comparison, scores: Stored) -> list[Movement]:
    """For each row, every pair of erasers, the control first; runs without scores (None) are left out."""
    moved = []
    for row in comparison.rows:
        scored = [(entry.eraser, scores[entry.runs[0].id]) for entry in row.run]
        for (before, a), (after, b) in combinations(scored, 2):
            if a and b and torch.equal(a.index, b.index):
                moved.append(Movement(row.label, before, after, a.f_si_nats.mean(0), b.f_si_nats.mean(0)))
    return moved


@dataclass(frozen=True)
class Agreement:
    """Correlation of the F-SI, [n] by seed, of R runs over the same examples after the same eraser."""

    eraser: Label
    names: Sequence[Label]
    f_si: Sequence[Mapping[int, Tensor]]

    @cached_property
    def correlation(self) -> Sequence[Sequence[float | None]]:
        """Pearson's, [R][R], mean over seeds; on the diagonal between seeds; None where there is none."""

        @cache
        def between(i: int, j: int) -> float | None:
            a, b = self.f_si[i], self.f_si[j]
            pairs = combinations(a.values(), 2) if i == j else ((a[seed], b[seed]) for seed in a if seed in b)
            known = [value for pair in pairs if (value := pearson(*pair)) is not None]
            return mean(known) if known else None

        runs = range(len(self.f_si))
        return [[between(min(i, j), max(i, j)) for j in runs] for i in runs]


def agreements(comparison: Comparison, scores: Stored, note: Callable[[str], object]) -> list[Agreement]:
    """Collect the runs of each eraser that scored the same examples, by several models or ways of training.

    Args:
        comparison: the runs.
        scores: by run id.
        note: called with a line on what is left out: there may be thousands of runs.
    """
    alike: dict[tuple[Label, str, str, str], tuple[list[Label], list[dict[int, Tensor]]]] = {}
    for row, column, result in comparison.information:
        if (stored := scores[result.run_id]) is not None:
            dataset = fingerprint(comparable(result.config)["dataset"])
            examples = dataset, digest(stored.index), digest(stored.given_label)
            names, f_si = alike.setdefault((column, *examples), ([], []))
            names.append(row)
            f_si.append(dict(zip(result.seeds, stored.f_si_nats.double(), strict=True)))
    several = [Agreement(key[0], names, f_si) for key, (names, f_si) in alike.items() if len(names) > 1]
    for one in several:
        if (count := len(one.names)) > MAX_RUNS:
            note(f"agreement of {count:,} runs ({one.eraser}, {one.names[0]}, …): left out, being more than {MAX_RUNS}")
    return [one for one in several if len(one.names) <= MAX_RUNS]


SCORES = {"f_si_nats": "F-SI", "si_nats": "SI", "si_sgd_nats": "SI, SGD"}
_REFERENCES = (
    "Correlation over examples, Pearson's and of ranks (Spearman's), of how far leaving one out moves weights and "
    "predictions, and the median of their ratios, with the least and the largest. "
    "Ours, unless it says otherwise, with a reference; influence 10: functions with a damping of 10, the paper's."
)
_ATTRIBUTION = (
    "How well methods of single examples foresee the network itself, trained again (docs/attribution.md); in brackets "
    "a 95 % bootstrap interval over halves and inputs, mean over seeds."
)
_ESTIMATES = (
    "How many scores are wrong by less than a factor of two, by the estimate, over seeds; of those that retraining "
    "left out, the rank correlation with the true error, and how many are judged rightly (docs/sample_info.md)."
)
_AUROC = "AUROC: the probability that an example of the group scores above one of the others; 0.5 is chance."
_SUMMARIES = (
    "Test accuracy (%) after a fraction of the training examples is removed in order of F-SI: mean over seeds (± "
    "standard deviation over seeds and, for the random order, draws); *: in some summary a class has no example left."
)
_AGREEMENT = (
    "Pearson's correlation of F-SI over the same examples, seed by seed, mean over seeds; of a run with itself: "
    "between its seeds."
)
_FITS = {
    "disjoint": "eraser fitted on other examples",
    "refit": "eraser refitted without each example",
    "scored": "eraser fitted on the scored examples: leaks what is left out",
}


Parts = Callable[[InformationResult], Mapping[str, Any] | None]  # of a run's result, by name


class ResultPart(NamedTuple):
    """A row of a table: a run, labelled by dataset and model (`row`) and eraser, and a named part of its result."""

    row: Label
    eraser: Label
    result: InformationResult
    name: str
    part: Any


def _scores(name: str) -> Callable[[ResultPart], list[float]]:
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


def _f_si(value: Callable[[ScoreSummary], float | None]) -> Callable[[ResultPart], float]:
    return lambda entry: mean(value(one) or 0.0 for one in entry.result.information["f_si_nats"])


def _mean(values: Sequence[float] | None) -> float | None:
    return mean(values) if values else None


def _classes(entry: ResultPart) -> str:
    classes = entry.result.config["sample_info"].get("classes", "all")
    if not isinstance(classes, list):
        return f"{classes} {entry.result.num_classes}"
    return ", ".join("+".join(map(str, c)) if isinstance(c, list) else str(c) for c in classes)


def _notes(entry: ResultPart) -> str:
    """Return notes: what the eraser was fitted on, correlation between seeds, the score with SGD's noise."""
    notes = [*eraser_note(entry.result.eraser_fit)]
    if (between := (entry.result.between_seeds or {}).get("pearson")) is not None:
        notes.append(f"between seeds: r = {between:.2f}")
    if sgd := _scores("si_sgd_nats")(entry):
        notes.append(f"SI with SGD's noise {mean(sgd):.2e}")
    return "; ".join(notes)


def _each(heading: str, name: str, value: str) -> Column[ResultPart]:
    """Return a column of the attribute `value` of every seed's part."""
    return spread(heading, name, ".3f", lambda entry: map(attrgetter(value), entry.part))


def _several(
    heading: str, names: Sequence[str], form: str, values: Callable[[ResultPart], list[Any]]
) -> Column[ResultPart]:
    """Numbers that are read together; nothing where there are none."""
    return Column(
        heading,
        lambda entry: form.format(*numbers) if (numbers := values(entry)) else "",
        lambda entry: dict(zip(names, values(entry) or [None] * len(names), strict=True)),
    )


def _range(
    heading: str, name: str, form: str, ends: Mapping[str, Callable[[Iterable[float]], float]], value: str
) -> Column[ResultPart]:
    """Return a column of a middle, the least and the most over seeds of the attribute `value`; some runs have none."""

    def values(entry: ResultPart) -> list[float]:
        known = [ratio for one in entry.part if (ratio := attrgetter(value)(one)) is not None]
        return [over(getattr(ratio, end) for ratio in known) for end, over in ends.items()] if known else []

    return _several(heading, [f"{name}_{end}" for end in ends], f"{{:{form}}} ({{:{form}}} to {{:{form}}})", values)


def _share(
    heading: str, name: str, counts: Callable[[ErrorEstimate, int], tuple[int | None, int | None]]
) -> Column[ResultPart]:
    """Return a column of counts and totals, added up over seeds; empty where retraining left none out."""

    def values(entry: ResultPart) -> list[int]:
        every = zip(*(counts(one, entry.result.train_size) for one in entry.part), strict=True)
        return [sum(known) for column in every if (known := [count for count in column if count is not None])]

    return _several(heading, (name, f"{name}_of"), "{:,} of {:,}", values)


_EXAMPLE = (
    "what an example tells the network's predictions that the others do not, in nats at noise sigma, over examples"
)
_ACCURACY, _LEFT_OUT = "of the linearised network, on test examples", "on each example, trained without it"
_TOP = "the share of all F-SI that the most informative tenth has"
WHO: Sequence[Column[ResultPart]] = (
    word("dataset · model", "dataset_model", lambda entry: entry.row),
    word("eraser", "eraser", lambda entry: entry.eraser),
)
SEEDS = Column[ResultPart]("seeds", lambda entry: f"{len(entry.result.seeds)}")
RUN = Column[ResultPart]("run", str, lambda entry: {"run_id": entry.result.run_id, "seeds": len(entry.result.seeds)})
RUNS: Sequence[Column[ResultPart]] = (
    word("classes", "classes", _classes),
    SEEDS,
    number("n", "examples", ",", lambda entry: entry.part.train_size),
    spread("F-SI, mean", "f_si_nats_mean", ".2e", _scores("f_si_nats"), _EXAMPLE),
    number("median", "f_si_nats_median", ".2e", _f_si(lambda one: one.median_nats)),
    number("top tenth", "share_of_top_tenth", ".0%", _f_si(lambda one: one.share_of_top_tenth), _TOP),
    number("largest / median", "largest_over_median", ",.0f", lambda entry: _largest_over_median(entry.result)),
    spread("SI, mean", "si_nats_mean", ".2e", _scores("si_nats"), "what it tells the weights"),
    number("accuracy", "test_accuracy", ".1%", lambda e: _mean(e.result.network.test_accuracy), _ACCURACY),
    number("left out", "left_out_accuracy", ".1%", lambda e: _mean(e.result.network.left_out_accuracy), _LEFT_OUT),
    Column("notes", _notes, spread("", "si_sgd_nats_mean", "", _scores("si_sgd_nats")).record),
)
GROUPS: Sequence[Column[ResultPart]] = (
    word("group", "group", lambda entry: entry.name),
    number("examples", "examples", ",", lambda entry: entry.part.examples),
    spread("F-SI, mean", "f_si_nats_mean", ".2e", lambda entry: entry.part.mean_nats),
    spread("AUROC, F-SI", "auroc", ".3f", lambda entry: entry.part.auroc),
    spread("AUROC, SI", "auroc_si", ".3f", lambda entry: entry.part.auroc_si),
)
_ENDS = {"median": mean, "least": min, "largest": max}  # of ratios: the median over examples, its mean over seeds
REFERENCES: Sequence[Column[ResultPart]] = (
    word("compared", "compared", lambda entry: entry.name),
    number("examples", "examples", ",", lambda entry: entry.part[0].examples),
    _each("weights", "weight_pearson", "weight.pearson"),
    _each("predictions", "prediction_pearson", "prediction.pearson"),
    _each("rank, weights", "weight_spearman", "weight.spearman"),
    _each("rank, predictions", "prediction_spearman", "prediction.spearman"),
    _range("ratio, weights", "weight_ratio", ".3g", _ENDS, "weight.ratio"),
    _range("ratio, predictions", "prediction_ratio", ".3g", _ENDS, "prediction.ratio"),
)
ATTRIBUTION: Sequence[Column[ResultPart]] = (
    word("method", "method", lambda entry: entry.name),
    _range("datamodeling score", "datamodeling", ".3f", dict.fromkeys(("mean", "low", "high"), mean), "datamodeling"),
    _each("leave-one-out r", "leave_one_out", "leave_one_out"),
    _each("AUROC, wrong labels", "auroc", "auroc"),
)
ESTIMATES: Sequence[Column[ResultPart]] = (
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

_STILL = "the share of the first's most informative tenth that is in the second's"
MOVEMENTS: Sequence[Column[Movement]] = (
    word("dataset · model", "dataset_model", lambda moved: moved.row),
    word("from", "from", lambda moved: moved.before),
    word("to", "to", lambda moved: moved.after),
    number("rank correlation", "spearman", ".3f", lambda moved: moved.spearman, "Spearman's"),
    number("median ratio", "median_ratio", ".3g", lambda moved: moved.median_ratio, "of the second to the first"),
    number("still in the top tenth", "top_tenth_overlap", ".0%", lambda moved: moved.overlap, _STILL),
)


def tables_of(
    comparison: Comparison, movements: Sequence[Movement] = (), agreements: Sequence[Agreement] = ()
) -> list[Table]:
    """Return the tables that have rows: a row per run, score, pair of erasers or runs, subgroup, or summary."""

    def table(
        title: str, kind: str, columns: Sequence[Column[ResultPart]], caption: str, parts: Callable[[Any], Any]
    ) -> Table:
        runs = comparison.information
        entries = [ResultPart(*run, name, part) for run in runs for name, part in (parts(run[-1]) or {}).items()]
        over = deviation_over(len(entry.result.seeds) for entry in entries)
        whole = " ".join([caption, *([f"{over}."] if over else [])])
        return replace(Table.of(f"sample-info-{kind}", [*WHO, *columns], entries, whole, [RUN]), title=title)

    tables = [
        table("Runs", "runs", RUNS, "docs/sample_info.md.", lambda result: {"": result}),
        table("Scores and references", "references", REFERENCES, _REFERENCES, attrgetter("references")),
        table("Estimated errors of scores", "errors", ESTIMATES, _ESTIMATES, attrgetter("error_estimates")),
        table(
            "Attribution methods judged by retraining", "attribution", ATTRIBUTION, _ATTRIBUTION,
            attrgetter("attribution"),
        ),
        replace(
            Table.of("sample-info-movement", MOVEMENTS, movements, "F-SI example by example, mean over seeds."),
            title="How scores move between erasers",
        ),
        table("Subgroups of examples", "groups", GROUPS, _AUROC, attrgetter("groups")),
        _agreement_table(agreements),
        _summaries_table(comparison),
    ]  # fmt: skip
    return [table for table in tables if table.rows]


def _agreement_table(agreements: Sequence[Agreement]) -> Table:
    pairs = [
        (one.eraser, one.names[i], one.names[j], value)
        for one in agreements
        for i, j in combinations_with_replacement(range(len(one.names)), 2)
        if (value := one.correlation[i][j]) is not None
    ]
    names, words = ("eraser", "run", "another_run", "pearson"), ("eraser", "run", "another run")
    records: list[Record] = [dict(zip(names, (*map(str, labels), value), strict=True)) for *labels, value in pairs]
    rows = [[*(label.display for label in labels), f"{value:.2f}"] for *labels, value in pairs]
    keys = [[None, None, None, value] for *_, value in pairs]
    headings, title = (*words, "correlation"), "Agreement between networks"
    return Table("sample-info-agreement", _AGREEMENT, headings, rows, records, keys, words, title=title)


def _summaries_table(comparison: Comparison) -> Table:
    """Tabulate summaries: a row per run and fraction removed, a column per order; CSV has a row per order."""
    rows, keys, records = list[list[str]](), list[list[float | None]](), list[Record]()
    runs = [(*labels, result, result.summaries) for *labels, result in comparison.information if result.summaries]
    orders = list(dict.fromkeys(order for *_, summaries in runs for order in summaries.accuracy))
    for row, eraser, result, summaries in runs:
        curves = spreads(summaries)
        for i, fraction in enumerate(summaries.removed):
            cells = {
                order: _percent(curve[i])
                + " *" * (min(s[i] for s in summaries.classes_left[order]) < result.num_classes)
                for order, curve in curves.items()
            }
            about = [row.display, eraser.display, accuracy_of(result), f"{fraction:.0%}"]
            rows.append([*about, *(cells.get(order, "") for order in orders)])
            means = (curves[order][i].mean if order in curves else None for order in orders)
            keys.append([None, None, None, fraction, *means])
        records += [
            {"dataset_model": str(row), "eraser": str(eraser), "run_id": result.run_id, "seeds": len(result.seeds),
             "network": summaries.network, "order": order, "removed": fraction,
             "accuracy_mean": one.mean, "accuracy_std": one.std}
            for order, curve in curves.items()
            for fraction, one in zip(summaries.removed, curve, strict=True)
        ]  # fmt: skip
    menus = ("dataset · model", "eraser", "accuracy")
    headings = [*menus, "removed", *(order.replace("_", " ") for order in orders)]
    return Table("sample-info-summaries", _SUMMARIES, headings, rows, records, keys, menus, title="Summaries")


def _percent(accuracy: Spread) -> str:
    return f"{Spread(100 * accuracy.mean, None if accuracy.std is None else 100 * accuracy.std):.1f}"


def spreads(summaries: SummaryCurves) -> dict[str, list[Spread]]:
    """Accuracy by order, for every fraction removed: over seeds, and over draws of the random order."""
    trials = dict(summaries.accuracy)
    if summaries.random_draws is not None:
        trials["random"] = [draw for draws in summaries.random_draws for draw in draws]
    return {order: [Spread.of(values) for values in zip(*curves, strict=True)] for order, curves in trials.items()}


def whose(summaries: SummaryCurves, config: Options) -> str:
    """Return in words which network the accuracy of a run's summaries is of."""
    if summaries.network == "linearized":
        return "of the linearised network"
    model = config["sample_info"]["summaries"].get("model")
    changed = ", ".join(f"{key}={value}" for key, value in model.items()) if isinstance(model, Mapping) else ""
    return f"of the network trained again{f' ({changed})' if changed else ''}"


def accuracy_of(result: InformationResult) -> str:
    """Return in words which network the accuracy is of, and whether the eraser was fitted on the examples."""
    assert result.summaries is not None
    return "; ".join([whose(result.summaries, result.config), *eraser_note(result.eraser_fit)])


def eraser_note(fit: str | None) -> list[str]:
    """Return a note on what the eraser was fitted on; empty for the control, and for older runs."""
    return [] if fit is None else [_FITS[fit]]
