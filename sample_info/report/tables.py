"""The tables of `python -m sample_info` and of reports: runs, and scores under several erasers and networks.

For agreement between networks see Harutyunyan et al. 2021, appendix A.4, figure 5.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import pandas as pd

from conf import Options, flatten
from harness.result import as_json
from harness.result_fields import Part
from harness.results.arrange import finished_runs, rows_of
from harness.results.columns import (
    RUNS,
    SEEDS,
    WHO,
    Column,
    Row,
    first,
    incomplete_remarks,
    runs_of,
    seeds_of,
    spread,
    values,
    word,
)
from harness.results.table import Table
from harness.statistics import deviation_over
from sample_info.result import InformationResult, SummaryCurves


def information(frames: Sequence[pd.DataFrame]) -> list[tuple[Row, InformationResult]]:
    """Return the row and the result of every finished run."""
    return [(row, run.result) for row, run in finished_runs(frames) if isinstance(run.result, InformationResult)]


_REFERENCES = (
    "Correlation over examples, Pearson's and of ranks (Spearman's), of how far leaving one out moves weights and "
    "predictions, and the median of their ratios, with the least and the largest. "
    "Ours, unless it says otherwise, with a reference; influence 10: functions with a damping of 10, the paper's."
)
_ATTRIBUTION = (
    "How well methods of single examples foresee the network itself, trained again (docs/attribution.md); in brackets "
    "a 95 % bootstrap interval over halves and inputs, mean over seeds."
)
_AUROC = "AUROC: the probability that an example of the group scores above one of the others; 0.5 is chance."
_SUMMARIES = (
    "Test accuracy (%) after a fraction of the training examples is removed in order of F-SI: mean over seeds (± "
    "standard deviation over seeds and, for the random order, draws); *: in some summary a class has no example left."
)
_MOVEMENTS = "F-SI example by example, mean over the seeds of both."
_AGREEMENT = (
    "Pearson's correlation of F-SI over the same examples, seed by seed, mean over seeds; of a run with itself: "
    "between its seeds."
)
_FITS = {
    "disjoint": "eraser fitted on other examples",
    "refit": "eraser refitted without each example",
    "scored": "eraser fitted on the scored examples: leaks what is left out",
}


def _classes(entry: Row) -> str:
    """Return the scored classes; empty for a run that has not finished."""
    result = runs_of(entry)[0].result
    if not isinstance(result, InformationResult):
        return ""
    classes = result.config["sample_info"].get("classes", "all")
    if not isinstance(classes, list):
        return f"{classes} {result.num_classes}"
    return ", ".join("+".join(map(str, c)) if isinstance(c, list) else str(c) for c in classes)


def _notes(entry: Row) -> str:
    """Return notes on the data of the eraser and on the correlation between seeds."""
    notes = []
    for result in (run.result for run in runs_of(entry)):
        if not isinstance(result, InformationResult):
            continue
        notes += eraser_note(result.eraser_fit)
        if (correlation := (result.between_seeds or {}).get("pearson")) is not None:
            notes.append(f"between seeds: r = {correlation:.2f}")
    return "; ".join(dict.fromkeys(notes))


def _over_seeds(parts: Sequence[Part]) -> dict[str, list[Any]]:
    """Return the numbers in the parts of all seeds, as lists over seeds by name."""
    flat = [{key.replace(".", "_"): value for key, value in flatten(as_json(part)).items()} for part in parts]
    return {key: [one.get(key) for one in flat] for one in flat for key in one}


@dataclass(frozen=True, kw_only=True)
class _Numbers(Column):
    """A column that shows several numbers together; empty if one is unknown.

    Attributes:
        template: format of all numbers.
        numbers: by name in rows and in CSV, a function that combines a number's values over seeds.
    """

    template: str
    numbers: Mapping[str, Callable[[Sequence[Any]], Any]]

    def text(self, row: Row) -> str:
        shown = self.record(row).values()
        return "" if None in shown else self.template.format(*shown)

    def record(self, row: Row) -> dict[str, Any]:
        return {name: of(known) if (known := values(row, name)) else None for name, of in self.numbers.items()}


def _ratio(heading: str, name: str) -> Column:
    """Return a column of ratios over examples: the median (averaged over seeds), the smallest and the largest."""
    over = {f"{name}_median": mean, f"{name}_least": min, f"{name}_largest": max}
    return _Numbers(heading, name, template="{:.3g} ({:.3g} to {:.3g})", numbers=over)


_EXAMPLE = (
    "what an example tells the network's predictions that the others do not, in nats at noise sigma, over examples"
)
_ACCURACY, _LEFT_OUT = "of the linearised network, on test examples", "on each example, trained without it"
_TOP = "the share of all F-SI that the most informative tenth has"
DATASET = word("dataset", "dataset")
SCORED = (
    Column("classes", "classes"),
    SEEDS,
    Column("n", "train_size", ","),
    spread("F-SI, mean", "f_si_nats", ".2e", _EXAMPLE),
    Column("median", "f_si_nats_median", ".2e", over=mean),
    Column("top tenth", "share_of_top_tenth", ".0%", _TOP, over=mean),
    Column("largest / median", "largest_over_median", ",.0f", over=mean),
    spread("SI, mean", "si_nats", ".2e", "what it tells the weights"),
    Column("accuracy", "accuracy", ".1%", _ACCURACY, over=mean),
    Column("left out", "left_out_accuracy", ".1%", _LEFT_OUT, over=mean),
    spread("SI, SGD", "si_sgd_nats", ".2e", "with the noise of SGD"),
    Column("notes", "notes", fields={}),
)
GROUPS = (
    word("group", "group"),
    Column("examples", "examples", ","),
    spread("F-SI, mean", "f_si_nats", ".2e"),
    spread("AUROC, F-SI", "auroc", ".3f"),
    spread("AUROC, SI", "auroc_si", ".3f"),
)
REFERENCES = (
    word("compared", "compared"),
    Column("examples", "examples", ","),
    spread("weights", "weight_pearson", ".3f"),
    spread("predictions", "prediction_pearson", ".3f"),
    spread("rank, weights", "weight_spearman", ".3f"),
    spread("rank, predictions", "prediction_spearman", ".3f"),
    _ratio("ratio, weights", "weight_ratio"),
    _ratio("ratio, predictions", "prediction_ratio"),
)
ATTRIBUTION = (
    word("method", "method"),
    _Numbers(
        "datamodeling score",
        "datamodeling",
        template="{:.3f} ({:.3f} to {:.3f})",
        numbers=dict.fromkeys(("datamodeling_mean", "datamodeling_low", "datamodeling_high"), mean),
    ),
    spread("leave-one-out r", "leave_one_out", ".3f"),
    spread("AUROC, wrong labels", "auroc", ".3f"),
)
_STILL = "the share of the first's most informative tenth that is in the second's"
MOVEMENTS = (
    word("model", "model"),
    word("from", "from"),
    word("to", "to"),
    Column("rank correlation", "spearman", ".3f", "Spearman's"),
    Column("median ratio", "median_ratio", ".3g", "of the second to the first"),
    Column("still in the top tenth", "top_tenth_overlap", ".0%", _STILL),
)
AGREEMENT = (
    word("eraser", "eraser"),
    word("run", "run"),
    word("another run", "another_run"),
    Column("correlation", "pearson", ".2f"),
)


def tables_of(
    frames: Sequence[pd.DataFrame], between_erasers: Sequence[Row] = (), between_networks: Sequence[Row] = ()
) -> list[Table]:
    """Return the non-empty tables: of runs, scores, pairs of erasers or runs, subgroups, and summaries."""
    runs = information(frames)
    orders = dict.fromkeys(order for _, result in runs if result.summaries for order in result.summaries.accuracy)
    summaries = [word("accuracy", "whose"), Column("removed", "removed", ".0%"), *map(_summary_column, orders)]
    entries = [row.assign(classes=_classes(row), notes=_notes(row)) for frame in frames for row in rows_of(frame)]
    removed = [_about(entry, result) | row for entry, result in runs for row in _summary_rows(result)]
    attribution = _parts(runs, "attribution", "method")
    groups = [{**row, "f_si_nats": row["mean_nats"]} for row in _parts(runs, "groups", "group")]
    tables = [
        _table("runs", "Runs", SCORED, "docs/sample_info.md.", entries),
        _table("references", "Scores and references", REFERENCES, _REFERENCES, _parts(runs, "references", "compared")),
        _table("attribution", "Attribution methods judged by retraining", ATTRIBUTION, _ATTRIBUTION, attribution),
        _table("movement", "How scores move between erasers", MOVEMENTS, _MOVEMENTS, between_erasers, who=()),
        _table("groups", "Subgroups of examples", GROUPS, _AUROC, groups),
        _table("agreement", "Agreement between networks", AGREEMENT, _AGREEMENT, between_networks, who=()),
        _table("summaries", "Summaries", summaries, _SUMMARIES, removed),
    ]
    return [table for table in tables if table.rows]


def _table(
    kind: str, title: str, columns: Sequence[Column], caption: str, rows: Sequence[Row], who: Sequence[Column] = WHO
) -> Table:
    over = [] if kind == "summaries" else deviation_over(map(seeds_of, rows))  # summaries also vary over draws
    shown = [DATASET, *who, *columns]
    remarks = incomplete_remarks(rows) if kind == "runs" else []
    return Table.of(
        f"sample-info-{kind}", shown, rows, [caption, *over], RUNS if who else [], f"sample_info: {title}", remarks
    )


def _about(entry: Row, result: InformationResult) -> dict[str, Any]:
    """Return the values that every row about a run has."""
    about = {name: first(entry, name) for name in ("dataset", "model", "eraser")}
    seeds = {"runs": result.run_id, "seed": result.seeds, "seeds": len(result.seeds)}
    return {**about, **seeds, "train_size": result.train_size}


def _parts(runs: Sequence[tuple[Row, InformationResult]], field: str, name: str) -> list[Row]:
    """Return one row per entry of a field of the results; an entry is a part, or a list with a part for each seed."""
    return [
        {**_about(entry, result), name: key, **(vars(part) if isinstance(part, Part) else _over_seeds(part))}
        for entry, result in runs
        for key, part in (getattr(result, field) or {}).items()
    ]


def _summary_rows(result: InformationResult) -> list[dict[str, Any]]:
    """Return one row per fraction removed, with each order's accuracies and whether a class has no example left."""
    summaries = result.summaries
    return [] if summaries is None else [
        {"whose": accuracy_of(summaries, result.config, result.eraser_fit), "removed": removed}
        | {order: [curve[i] for curve in curves] for order, curves in trials(summaries).items()}
        | {
            f"{order}_lacks_classes": min(left[i] for left in lefts) < result.num_classes
            for order, lefts in summaries.classes_left.items()
        }
        for i, removed in enumerate(summaries.removed)
    ]  # fmt: skip


class _Summary(Column):
    """A column of accuracies, marked if a class has no example left."""

    def text(self, row: Row) -> str:
        return super().text(row) + " *" * bool(row.get(f"{self.name}_lacks_classes"))

    def record(self, row: Row) -> dict[str, Any]:
        mark = f"{self.name}_lacks_classes"
        return super().record(row) | {mark: row.get(mark)}


def _summary_column(order: str) -> Column:
    return _Summary(**vars(spread(order.replace("_", " "), order, ".1f", scale=100)))


def trials(summaries: SummaryCurves) -> dict[str, list[list[float]]]:
    """Return accuracy curves over the fractions removed, by order: one per seed or, for the random order, per draw."""
    curves = dict(summaries.accuracy)
    if summaries.random_draws is not None:
        curves["random"] = [draw for draws in summaries.random_draws for draw in draws]
    return curves


def accuracy_of(summaries: SummaryCurves, config: Options, eraser_fit: str | None) -> str:
    """Describe the network whose accuracy the summaries report, and the data of its eraser."""
    if summaries.network == "linearized":
        return "; ".join(["of the linearised network", *eraser_note(eraser_fit)])
    model = config["sample_info"]["summaries"].get("model")
    changed = ", ".join(f"{key}={value}" for key, value in model.items()) if isinstance(model, Mapping) else ""
    return "; ".join([f"of the network trained again{f' ({changed})' if changed else ''}", *eraser_note(eraser_fit)])


def eraser_note(fit: str | None) -> list[str]:
    """Return a note on the data on which the eraser was fitted; empty for the control and for older runs."""
    return [] if fit is None else [_FITS[fit]]
