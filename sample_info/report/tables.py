"""The tables of `python -m sample_info` and of the report: runs, their examples under several erasers and networks.

How scores agree between networks: Harutyunyan et al. 2021, appendix A.4, figure 5.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations, combinations_with_replacement
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from conf import Options
from erasure.store.checked_files import digest, fingerprint
from erasure.store.regular_files import DamagedFileError
from harness.example_bits import Stored, read_stored
from harness.result import InformationResult
from harness.results.arrange import Comparison, comparable
from harness.results.read import Note
from harness.results.run_labels import Label
from harness.results.statistics import Spread, deviation_over
from harness.results.table import Column, Row, Table, number, spread, spread_record, word
from harness.sample_info_fields import Attribution, ErrorEstimate, Group, ReferenceAgreement, SummaryCurves
from sample_info.agreement import pearson, spearman

MAX_RUNS = 30  # of which the agreement is shown


Scores = Mapping[str, Stored | None]  # by run id; None for a run that cannot be compared


def relations(comparison: Comparison, note: Note) -> tuple[list[dict[str, Any]], list["Agreement"]]:
    """Return how stored scores move between erasers and agree between networks; note files that are left out."""
    runs = [run for entry in comparison.entries for run in entry["runs"]]
    scores = {run.id: read_scores(run.directory, note, run.seeds) for run in runs}
    return movements(comparison, scores), agreements(comparison, scores, note)


def read_scores(directory: Path, note: Note, seeds: Sequence[int] | None = None) -> Stored | None:
    """Read a run's positions in the training split, given labels [n] and F-SI [S, n]; note a damaged file."""
    try:
        stored = read_stored(directory / "scores.safetensors", ("index", "given_label"), ("f_si_nats",))
        if stored is not None and seeds is not None and list(stored.seeds) != list(seeds):
            raise DamagedFileError(f"{directory / 'scores.safetensors'} is of the seeds {stored.seeds}, not the run's")
    except DamagedFileError as error:
        note(f"{error}: left out of how scores move and agree")
        return None
    return stored


def movements(comparison: Comparison, scores: Scores) -> list[dict[str, Any]]:
    """Compare F-SI under every pair of erasers of a model, the control first; runs without scores are left out.

    Returns:
        Rows of a frame: labels, how the scores agree, and the scores `first` and `second`, [n] nats, mean over seeds.
    """
    moved = []
    for model, entries in comparison.rows.items():
        scored = [(entry["eraser"], scores[entry["runs"][0].id]) for entry in entries if entry["runs"]]
        for (before, a), (after, b) in combinations(scored, 2):
            if a and b and torch.equal(a.tensors["index"], b.tensors["index"]):
                labels = {"dataset_model": model, "from": before, "to": after}
                moved.append(labels | movement(*(one.tensors["f_si_nats"].mean(0) for one in (a, b))))
    return moved


def movement(first: Tensor, second: Tensor) -> dict[str, Any]:
    """Compare two scores [n] of the same examples."""
    positive = first > 0
    tenth = max(1, len(first) // 10)
    tops = [{*scores.argsort(descending=True)[:tenth].tolist()} for scores in (first, second)]
    return {
        "first": first,
        "second": second,
        "spearman": spearman(first, second),
        "median_ratio": float((second[positive] / first[positive]).median()) if bool(positive.any()) else math.nan,
        "top_tenth_overlap": len(tops[0] & tops[1]) / tenth,
    }


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
            correlations = [value for pair in pairs if (value := pearson(*pair)) is not None]
            return mean(correlations) if correlations else None

        runs = range(len(self.f_si))
        return [[between(min(i, j), max(i, j)) for j in runs] for i in runs]


def information(comparison: Comparison) -> list[tuple[Label, Label, InformationResult]]:
    """Return dataset and model, eraser and result of every run."""
    runs = [(entry, run.result) for entry in comparison.entries for run in entry["runs"]]
    return [(entry["model"], entry["eraser"], one) for entry, one in runs if isinstance(one, InformationResult)]


def agreements(comparison: Comparison, scores: Scores, note: Note) -> list[Agreement]:
    """Collect the runs of each eraser that scored the same examples, by several models or ways of training.

    Args:
        comparison: the runs.
        scores: by run id.
        note: called with a line on what is left out: there may be thousands of runs.
    """
    alike: dict[tuple[Any, ...], tuple[list[Label], list[dict[int, Tensor]]]] = {}
    for row, column, result in information(comparison):
        if (stored := scores[result.run_id]) is not None:
            dataset = fingerprint(comparable(result.config)["dataset"])
            examples = dataset, *(digest(stored.tensors[name]) for name in ("index", "given_label"))
            names, f_si = alike.setdefault((column, *examples), ([], []))
            names.append(row)
            f_si.append(dict(zip(result.seeds, stored.tensors["f_si_nats"].double(), strict=True)))
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


def _runs_row(result: InformationResult) -> dict[str, Any]:
    scores = result.information
    f_si = scores["f_si_nats"]
    ratios = [one.median_nats and one.largest_nats / one.median_nats for one in f_si]  # 0 where a median is 0
    network = result.network
    return {
        "classes": _classes(result),
        "examples": result.train_size,
        **spread_record("f_si_nats_mean", [one.mean_nats for one in f_si]),
        "f_si_nats_median": mean(one.median_nats for one in f_si),
        "share_of_top_tenth": mean(one.share_of_top_tenth or 0.0 for one in f_si),
        "largest_over_median": mean(ratios) if all(ratios) else None,
        **spread_record("si_nats_mean", [one.mean_nats for one in scores.get("si_nats", ())]),
        "test_accuracy": mean(network.test_accuracy),
        "left_out_accuracy": mean(network.left_out_accuracy) if network.left_out_accuracy else None,
        **spread_record("si_sgd_nats_mean", [one.mean_nats for one in scores.get("si_sgd_nats", ())]),
        "between_seeds": (result.between_seeds or {}).get("pearson"),
        "eraser_fit": result.eraser_fit,
    }


def _classes(result: InformationResult) -> str:
    classes = result.config["sample_info"].get("classes", "all")
    if not isinstance(classes, list):
        return f"{classes} {result.num_classes}"
    return ", ".join("+".join(map(str, c)) if isinstance(c, list) else str(c) for c in classes)


def _notes(row: Row) -> str:
    """Return notes: what the eraser was fitted on, correlation between seeds, the score with SGD's noise."""
    notes = eraser_note(row["eraser_fit"])
    if row["between_seeds"] is not None:
        notes.append(f"between seeds: r = {row['between_seeds']:.2f}")
    if row["si_sgd_nats_mean"]:
        notes.append(f"SI with SGD's noise {row['si_sgd_nats_mean']:.2e}")
    return "; ".join(notes)


def _group_row(group: Group) -> dict[str, Any]:
    return {
        "examples": group.examples,
        **spread_record("f_si_nats_mean", group.mean_nats),
        **spread_record("auroc", group.auroc),
        **spread_record("auroc_si", group.auroc_si),
    }


_ENDS = {"median": mean, "least": min, "largest": max}  # of ratios: the median over examples, its mean over seeds


def _reference_row(seeds: Sequence[ReferenceAgreement]) -> dict[str, Any]:
    row: dict[str, Any] = {"examples": seeds[0].examples}
    for name in ("weight", "prediction"):
        of_seeds = [getattr(one, name) for one in seeds]
        row |= spread_record(f"{name}_pearson", [one.pearson for one in of_seeds])
        row |= spread_record(f"{name}_spearman", [one.spearman for one in of_seeds])
        ratios = [one.ratio for one in of_seeds if one.ratio is not None]  # of some runs
        for end, over in _ENDS.items():
            row[f"{name}_ratio_{end}"] = over(getattr(ratio, end) for ratio in ratios) if ratios else None
    return row


def _attribution_row(seeds: Sequence[Attribution]) -> dict[str, Any]:
    ends = ("mean", "low", "high")
    return {
        **{f"datamodeling_{end}": mean(getattr(one.datamodeling, end) for one in seeds) for end in ends},
        **spread_record("leave_one_out", [one.leave_one_out for one in seeds]),
        **spread_record("auroc", [one.auroc for one in seeds]),
    }


def _estimate_row(seeds: Sequence[ErrorEstimate], train_size: int) -> dict[str, Any]:
    """Add counts up over seeds; None where retraining left no example out."""

    def total(counts: Iterable[int | None]) -> int | None:
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    return {
        "believable": total(one.believable for one in seeds),
        "believable_of": train_size * len(seeds),
        **spread_record("spearman", [one.spearman for one in seeds]),
        "rightly_believed": total(one.rightly_believed for one in seeds),
        "rightly_believed_of": total(one.believed for one in seeds),
        "rightly_doubted": total(one.rightly_doubted for one in seeds),
        "rightly_doubted_of": total(one.retrained and one.retrained - (one.believed or 0) for one in seeds),
    }


def _several(heading: str, names: Sequence[str], form: str) -> Column:
    """Return a column of numbers that are read together; empty where the first is not known."""
    return Column(
        heading, lambda row: "" if row[names[0]] is None else form.format(*(row[name] for name in names)), names
    )


def _range(heading: str, name: str, form: str, ends: Iterable[str] = _ENDS) -> Column:
    """Return a column of a middle, the least and the most."""
    names = [f"{name}_{end}" for end in ends]
    return _several(heading, names, f"{{:{form}}} ({{:{form}}} to {{:{form}}})")


_EXAMPLE = (
    "what an example tells the network's predictions that the others do not, in nats at noise sigma, over examples"
)
_ACCURACY, _LEFT_OUT = "of the linearised network, on test examples", "on each example, trained without it"
_TOP = "the share of all F-SI that the most informative tenth has"
WHO = word("dataset · model", "dataset_model"), word("eraser", "eraser")
SEEDS = Column("seeds", lambda row: f"{row['seeds']}")
RUN = ("run_id", "seeds")  # in CSV files alone
RUNS = (
    word("classes", "classes"),
    SEEDS,
    number("n", "examples", ","),
    spread("F-SI, mean", "f_si_nats_mean", ".2e", _EXAMPLE),
    number("median", "f_si_nats_median", ".2e"),
    number("top tenth", "share_of_top_tenth", ".0%", _TOP),
    number("largest / median", "largest_over_median", ",.0f"),
    spread("SI, mean", "si_nats_mean", ".2e", "what it tells the weights"),
    number("accuracy", "test_accuracy", ".1%", _ACCURACY),
    number("left out", "left_out_accuracy", ".1%", _LEFT_OUT),
    Column("notes", _notes, ("si_sgd_nats_mean", "si_sgd_nats_std")),
)
GROUPS = (
    word("group", "group"),
    number("examples", "examples", ","),
    spread("F-SI, mean", "f_si_nats_mean", ".2e"),
    spread("AUROC, F-SI", "auroc", ".3f"),
    spread("AUROC, SI", "auroc_si", ".3f"),
)
REFERENCES = (
    word("compared", "compared"),
    number("examples", "examples", ","),
    spread("weights", "weight_pearson", ".3f"),
    spread("predictions", "prediction_pearson", ".3f"),
    spread("rank, weights", "weight_spearman", ".3f"),
    spread("rank, predictions", "prediction_spearman", ".3f"),
    _range("ratio, weights", "weight_ratio", ".3g"),
    _range("ratio, predictions", "prediction_ratio", ".3g"),
)
ATTRIBUTION = (
    word("method", "method"),
    _range("datamodeling score", "datamodeling", ".3f", ("mean", "low", "high")),
    spread("leave-one-out r", "leave_one_out", ".3f"),
    spread("AUROC, wrong labels", "auroc", ".3f"),
)
ESTIMATES = (
    Column("score", lambda row: SCORES.get(row["score"]) or row["score"], ("score",)),
    _several("within a factor of 2, by the estimate", ("believable", "believable_of"), "{:,} of {:,}"),
    spread("rank correlation", "spearman", ".3f"),
    _several("believed, and truly within", ("rightly_believed", "rightly_believed_of"), "{:,} of {:,}"),
    _several("doubted, and truly not", ("rightly_doubted", "rightly_doubted_of"), "{:,} of {:,}"),
)
_STILL = "the share of the first's most informative tenth that is in the second's"
MOVEMENTS = (
    WHO[0],
    word("from", "from"),
    word("to", "to"),
    number("rank correlation", "spearman", ".3f", "Spearman's"),
    number("median ratio", "median_ratio", ".3g", "of the second to the first"),
    number("still in the top tenth", "top_tenth_overlap", ".0%", _STILL),
)
AGREEMENT = (
    word("eraser", "eraser"),
    word("run", "run"),
    word("another run", "another_run"),
    number("correlation", "pearson", ".2f"),
)


def tables_of(
    comparison: Comparison, movements: Sequence[Row] = (), agreements: Sequence[Agreement] = ()
) -> list[Table]:
    """Return the tables that have rows: a row per run, score, pair of erasers or runs, subgroup, or summary."""
    runs = [
        ({"dataset_model": model, "eraser": eraser, "run_id": result.run_id, "seeds": len(result.seeds)}, result)
        for model, eraser, result in information(comparison)
    ]

    def table(
        title: str, kind: str, columns: Sequence[Column], caption: str, rows: Callable[[Any], list[dict[str, Any]]]
    ) -> Table:
        frame = [who | row for who, result in runs for row in rows(result)]
        over = deviation_over(row["seeds"] for row in frame)
        whole = " ".join([caption, *([f"{over}."] if over else [])])
        return Table.of(f"sample-info-{kind}", [*WHO, *columns], frame, whole, RUN, title)

    def named(name: str, of: Mapping[str, Any] | None, row: Callable[[Any], dict[str, Any]]) -> list[dict[str, Any]]:
        return [{name: key, **row(part)} for key, part in (of or {}).items()]

    tables = [
        table("Runs", "runs", RUNS, "docs/sample_info.md.", lambda one: [_runs_row(one)]),
        table(
            "Scores and references", "references", REFERENCES, _REFERENCES,
            lambda one: named("compared", one.references, _reference_row),
        ),
        table(
            "Estimated errors of scores", "errors", ESTIMATES, _ESTIMATES,
            lambda one: named("score", one.error_estimates, lambda part: _estimate_row(part, one.train_size)),
        ),
        table(
            "Attribution methods judged by retraining", "attribution", ATTRIBUTION, _ATTRIBUTION,
            lambda one: named("method", one.attribution, _attribution_row),
        ),
        Table.of(
            "sample-info-movement", MOVEMENTS, movements,
            "F-SI example by example, mean over seeds.", title="How scores move between erasers",
        ),
        table(
            "Subgroups of examples", "groups", GROUPS, _AUROC, lambda one: named("group", one.groups, _group_row)
        ),
        Table.of(
            "sample-info-agreement", AGREEMENT, [row for one in agreements for row in _agreement_rows(one)], _AGREEMENT,
            title="Agreement between networks",
        ),
        _summaries_table(runs),
    ]  # fmt: skip
    return [table for table in tables if table.rows]


def _agreement_rows(one: Agreement) -> list[dict[str, Any]]:
    return [
        {"eraser": one.eraser, "run": one.names[i], "another_run": one.names[j], "pearson": value}
        for i, j in combinations_with_replacement(range(len(one.names)), 2)
        if (value := one.correlation[i][j]) is not None
    ]


def _summaries_table(runs: Sequence[tuple[dict[str, Any], InformationResult]]) -> Table:
    """Tabulate summaries: a row per run and fraction removed, a column per order."""
    of_runs = [(who, result, result.summaries) for who, result in runs if result.summaries]
    orders = [*dict.fromkeys(order for *_, summaries in of_runs for order in summaries.accuracy)]
    columns = [_summary_column(order) for order in orders]
    unknown = dict.fromkeys(name for column in columns for name in column.names)
    frame = [
        {**who, **unknown, "accuracy": accuracy_of(result), "removed": removed, **_summary_row(result, summaries, i)}
        for who, result, summaries in of_runs
        for i, removed in enumerate(summaries.removed)
    ]
    about = (*WHO, word("accuracy", "accuracy"), number("removed", "removed", ".0%"))
    return Table.of("sample-info-summaries", (*about, *columns), frame, _SUMMARIES, RUN, "Summaries")


def _summary_row(result: InformationResult, summaries: SummaryCurves, i: int) -> dict[str, Any]:
    """Return the accuracy of every order at the fraction at a position, and whether a class has no example left."""
    row: dict[str, Any] = {}
    for order, curve in spreads(summaries).items():
        lacks_classes = min(left[i] for left in summaries.classes_left[order]) < result.num_classes
        row |= {f"{order}_mean": curve[i].mean, f"{order}_std": curve[i].std, f"{order}_lacks_classes": lacks_classes}
    return row


def _summary_column(order: str) -> Column:
    """Return a column of accuracies, which are marked where a class has no example left."""
    column, mark = spread(order.replace("_", " "), f"{order}_mean", ".1f", scale=100), f"{order}_lacks_classes"
    return replace(column, text=lambda row: column.text(row) + " *" * bool(row[mark]), names=(*column.names, mark))


def spreads(summaries: SummaryCurves) -> dict[str, list[Spread]]:
    """Accuracy by order, for every fraction removed: over seeds, and over draws of the random order."""
    trials = dict(summaries.accuracy)
    if summaries.random_draws is not None:
        trials["random"] = [draw for draws in summaries.random_draws for draw in draws]
    return {order: [Spread.of(values) for values in zip(*curves, strict=True)] for order, curves in trials.items()}


def whose(summaries: SummaryCurves, config: Options) -> str:
    """Describe the network whose accuracy a run's summaries report."""
    if summaries.network == "linearized":
        return "of the linearised network"
    model = config["sample_info"]["summaries"].get("model")
    changed = ", ".join(f"{key}={value}" for key, value in model.items()) if isinstance(model, Mapping) else ""
    return f"of the network trained again{f' ({changed})' if changed else ''}"


def accuracy_of(result: InformationResult) -> str:
    """Describe the network whose accuracy is reported, and the data of its eraser."""
    assert result.summaries is not None
    return "; ".join([whose(result.summaries, result.config), *eraser_note(result.eraser_fit)])


def eraser_note(fit: str | None) -> list[str]:
    """Return a note on what the eraser was fitted on; empty for the control, and for older runs."""
    return [] if fit is None else [_FITS[fit]]
