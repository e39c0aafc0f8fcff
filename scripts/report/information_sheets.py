"""Sample information's tables on the page: those of `python -m sample_info`, agreement and summaries as lists."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

from harness.compare import Grid, Spread
from harness.result import InformationResult, SummaryCurves
from harness.table import Column, Record, Table, records_of
from sample_info.report.table import (
    AGREEMENT,
    RUN,
    WHO,
    Entry,
    entries,
    eraser_note,
    groups_table,
    movements_table,
    percent,
    references_table,
    runs_table,
    spreads,
    whose,
)
from scripts.report.information import Information

_SUMMARIES = (
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
    grid = information.grid
    runs, (summaries, summarised) = runs_table(grid), _summaries(grid)
    possible = (
        _sheet("Runs", replace(runs, words=[*runs.words, "notes"])),
        _sheet("Scores and references", references_table(grid)),
        _sheet("How scores move between erasers", movements_table(information.movements)),
        _sheet("Agreement between networks", _agreements(information)),
        _sheet("Groups of examples", groups_table(grid)),
        replace(_sheet("Summaries", summaries), runs=summarised),
    )
    return [sheet for sheet in possible if sheet.table.rows]


def _sheet(title: str, table: Table) -> Sheet:
    """With a record, and its run, to each row."""
    return Sheet(title, table, table.words, table.menus, [str(r["run_id"]) for r in table.records if "run_id" in r])


def _agreements(information: Information) -> Table:
    found = [
        (one.eraser, one.names[i], one.names[j], value)
        for one in information.agreements
        for i, j in combinations_with_replacement(range(len(one.names)), 2)
        if (value := one.correlation[i][j]) is not None
    ]
    names = ("eraser", "run", "another_run", "pearson")
    records: list[Record] = [dict(zip(names, row, strict=True)) for row in found]
    words = ("eraser", "run", "another run")
    rows = [[*row, f"{value:.2f}"] for *row, value in found]
    return Table("sample-info-agreement", AGREEMENT, (*words, "correlation"), rows, records, words, words)


def _summaries(grid: Grid[InformationResult]) -> tuple[Table, list[str]]:
    """A row per run and order, a record per fraction; and the run of each row."""
    found = entries(grid, lambda result: _by_fraction(result.summaries) if result.summaries else {})
    fractions = sorted({fraction for entry in found for fraction in entry.part})
    table = Table.of(
        "sample-info-summaries",
        [
            *WHO,
            Column("accuracy", _accuracy, menu=True),
            Column("removed first", lambda entry: entry.name, menu=True),
            *map(_without, fractions),
        ],
        found,
        _SUMMARIES,
    )
    records = [
        {**about, "order": entry.name, "removed": fraction, "accuracy_mean": spread.mean, "accuracy_std": spread.std}
        for entry, about in zip(found, records_of([*WHO, RUN, _NETWORK], found), strict=True)
        for fraction, spread in entry.part.items()
    ]
    return replace(table, records=records), [entry.result.run_id for entry in found]


def _by_fraction(summaries: SummaryCurves) -> dict[str, dict[float, Spread]]:
    return {order: dict(zip(summaries.removed, of, strict=True)) for order, of in spreads(summaries).items()}


def _accuracy(entry: Entry[dict[float, Spread]]) -> str:
    return "; ".join([whose(entry.result.config), *eraser_note(entry.result.eraser_fit)])


_NETWORK = Column[Entry[dict[float, Spread]]](
    "", _accuracy, lambda entry: {"network": entry.result.summaries and entry.result.summaries.network}
)


def _without(fraction: float) -> Column[Entry[dict[float, Spread]]]:
    def text(entry: Entry[dict[float, Spread]]) -> str:
        return percent(entry.part[fraction]) if fraction in entry.part else ""

    return Column(f"without {fraction:.0%}", text)
