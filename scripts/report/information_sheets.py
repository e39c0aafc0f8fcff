"""Sample information's tables: runs, groups of examples, references, movements, agreement, summaries."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from statistics import mean
from typing import Any

from harness.compare import Grid, Result, Spread
from harness.table import Table
from sample_info.report.table import (
    AGREEMENT_CAPTION,
    AGREEMENT_HEADINGS,
    CAPTION,
    GROUP_CAPTION,
    GROUP_HEADINGS,
    HEADINGS,
    MOVEMENT_CAPTION,
    MOVEMENT_HEADINGS,
    REFERENCE_CAPTION,
    REFERENCE_HEADINGS,
    group_lines,
    movement_cells,
    network_of,
    percent,
    reference_lines,
    run_lines,
    spreads,
)
from scripts.report.information import Information

_WHO = HEADINGS[:2]  # dataset · model, eraser
_SUMMARY_CAPTION = (
    "Test accuracy (%) once a share of the examples is removed in the order of their F-SI (mean over seeds ± standard "
    "deviation over seeds and, for the random order, draws)."
)


@dataclass(frozen=True)
class Sheet:
    """A table that the page shows as one that sorts and filters.

    Attributes:
        title: above it.
        table: its text.
        words: headings of columns that are sorted as text; the others as numbers.
        filters: headings of columns with a menu.
        runs: the run of each row, whose figure it links to; empty where a row is not one run's.
    """

    title: str
    table: Table
    words: Sequence[str]
    filters: Sequence[str]
    runs: Sequence[str] = ()


def sheets(information: Information) -> list[Sheet]:
    """The tables that there is something for."""
    runs = list(information.grid.runs())
    possible = (
        _runs(information, runs),
        _references(information.grid, runs),
        _movements(information),
        _agreements(information),
        _groups(information.grid, runs),
        _summaries(runs),
    )
    return [sheet for sheet in possible if sheet.table.rows]


def _runs(information: Information, runs: Sequence[tuple[str, str, Result]]) -> Sheet:
    table = Table(
        "sample-info-runs",
        CAPTION,
        HEADINGS,
        run_lines(information.grid),
        [_who(*run) | _numbers(run[2]) for run in runs],
    )
    words = (*_WHO, "classes", "notes")
    return Sheet("Runs", table, words, words[:3], [result["run_id"] for _, _, result in runs])


def _references(grid: Grid, runs: Sequence[tuple[str, str, Result]]) -> Sheet:
    found = [(run, name, seeds) for run in runs for name, seeds in run[2]["references"].items()]
    records = []
    for run, name, seeds in found:
        correlations = {
            f"{kind}_{how}": _mean([one[kind][how] for one in seeds])
            for how in ("pearson", "spearman")
            for kind in ("weight", "prediction")
        } | {
            f"{kind}_ratio_{end}": _mean([(one[kind].get("ratio") or {}).get(end) for one in seeds])
            for kind in ("weight", "prediction")
            for end in ("median", "least", "largest")
        }
        records.append(_who(*run) | {"compared": name, "examples": seeds[0]["examples"]} | correlations)
    table = Table("sample-info-references", REFERENCE_CAPTION, REFERENCE_HEADINGS, reference_lines(grid), records)
    words = REFERENCE_HEADINGS[:3]
    return Sheet("Scores and references", table, words, words, [run[2]["run_id"] for run, _, _ in found])


def _movements(information: Information) -> Sheet:
    records = [
        {
            "dataset_model": m.row,
            "from": m.before,
            "to": m.after,
            "spearman": m.spearman,
            "median_ratio": m.median_ratio,
            "top_tenth_overlap": m.overlap,
        }
        for m in information.movements
    ]
    rows = [movement_cells(m) for m in information.movements]
    table = Table("sample-info-movement", MOVEMENT_CAPTION, MOVEMENT_HEADINGS, rows, records)
    return Sheet("How scores move between erasers", table, MOVEMENT_HEADINGS[:3], MOVEMENT_HEADINGS[:3])


def _agreements(information: Information) -> Sheet:
    found = [
        (one.eraser, one.names[i], one.names[j], value)
        for one in information.agreements
        for i, j in combinations_with_replacement(range(len(one.names)), 2)
        if (value := one.correlation[i][j]) is not None
    ]
    records: list[dict[str, Any]] = [
        {"eraser": eraser, "run": one, "another_run": other, "pearson": value} for eraser, one, other, value in found
    ]
    rows = [[*names, f"{value:.2f}"] for *names, value in found]
    table = Table("sample-info-agreement", AGREEMENT_CAPTION, AGREEMENT_HEADINGS, rows, records)
    return Sheet("Agreement between networks", table, AGREEMENT_HEADINGS[:3], AGREEMENT_HEADINGS[:3])


def _groups(grid: Grid, runs: Sequence[tuple[str, str, Result]]) -> Sheet:
    found = [(run, name, group) for run in runs for name, group in run[2]["groups"].items()]
    records = []
    for run, name, group in found:
        spread = Spread.of(group["mean_nats"])
        means = {key: _mean(group[key]) for key in ("auroc", "auroc_si")}
        means |= {"f_si_nats_mean": spread.mean, "f_si_nats_std": spread.std}
        records.append(_who(*run) | {"group": name, "examples": group["examples"]} | means)
    return Sheet(
        "Groups of examples",
        Table("sample-info-groups", GROUP_CAPTION, GROUP_HEADINGS, group_lines(grid), records),
        GROUP_HEADINGS[:3],
        GROUP_HEADINGS[:3],
        [run[2]["run_id"] for run, _, _ in found],
    )


def _summaries(runs: Sequence[tuple[str, str, Result]]) -> Sheet:
    found = [(run, order) for run in runs if run[2]["summaries"] for order in run[2]["summaries"]["accuracy"]]
    fractions = sorted({fraction for run, _ in found for fraction in run[2]["summaries"]["removed"]})
    rows, records = [], []
    for run, order in found:
        summary = run[2]["summaries"]
        accuracy = dict(zip(summary["removed"], spreads(summary)[order], strict=True))
        cells = [percent(accuracy[fraction]) if fraction in accuracy else "" for fraction in fractions]
        rows.append([*run[:2], network_of(run[2]["config"]), order, *cells])
        own = _who(*run) | {"network": summary["network"], "order": order}
        records += [own | {"removed": f, "accuracy_mean": s.mean, "accuracy_std": s.std} for f, s in accuracy.items()]
    headings = (*_WHO, "accuracy", "removed first", *(f"without {fraction:.0%}" for fraction in fractions))
    return Sheet(
        "Summaries",
        Table("sample-info-summaries", _SUMMARY_CAPTION, headings, rows, records),
        headings[:4],
        headings[:4],
        [run[2]["run_id"] for run, _ in found],
    )


def _who(row: str, eraser: str, result: Result) -> dict[str, Any]:
    return {"dataset_model": row, "eraser": eraser, "run_id": result["run_id"]}


def _numbers(result: Result) -> dict[str, Any]:
    """A run's numbers, unrounded, with units in their names."""
    information, numbers = result["information"], {"examples": result["train_size"], "seeds": len(result["seeds"])}
    for name in ("f_si_nats", "si_nats", "si_sgd_nats"):
        spread = Spread.of([one["mean_nats"] for one in information[name]]) if name in information else None
        numbers |= {f"{name}_mean": spread and spread.mean, f"{name}_std": spread and spread.std}
    return numbers | {
        "f_si_nats_median": mean(one["median_nats"] for one in information["f_si_nats"]),
        "share_of_top_tenth": mean(one["share_of_top_tenth"] or 0.0 for one in information["f_si_nats"]),
        "test_accuracy": mean(result["network"]["test_accuracy"]),
        "left_out_accuracy": _mean(result["network"].get("left_out_accuracy", ())),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None
