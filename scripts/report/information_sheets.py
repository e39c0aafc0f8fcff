"""Sample information's tables on the page: those of `python -m sample_info`, agreement and summaries as lists."""

from dataclasses import replace
from itertools import combinations_with_replacement

from harness.compare import Grid, Spread
from harness.information import SummaryCurves
from harness.result import InformationResult
from harness.table import Column, Record, Table, records_of
from sample_info.report.comparison import AGREEMENT
from sample_info.report.summaries import accuracy_of, percent, spreads
from sample_info.report.table import RUN, WHO, Entry, entries, tables_of
from scripts.report.information import Information

_SUMMARIES = (
    "Test accuracy (%) once a share of the examples is removed in the order of their F-SI (mean over seeds ± standard "
    "deviation over seeds and, for the random order, draws)."
)


def sheets(information: Information) -> list[Table]:
    """The tables that there is something for, as the page sorts and filters them."""
    tables = tables_of(information.grid, information.movements)
    tables["Runs"] = replace(tables["Runs"], words=[*tables["Runs"].words, "notes"])
    tables |= {"Agreement between networks": _agreements(information), "Summaries": _summaries(information.grid)}
    return [replace(table, title=title) for title, table in tables.items() if table.rows]


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


def _summaries(grid: Grid[InformationResult]) -> Table:
    """A row per run and order, a record per fraction."""
    found = entries(grid, lambda result: _by_fraction(result.summaries) if result.summaries else {})
    fractions = sorted({fraction for entry in found for fraction in entry.part})
    table = Table.of(
        "sample-info-summaries",
        [
            *WHO,
            Column("accuracy", lambda entry: accuracy_of(entry.result), menu=True),
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
    return replace(table, records=records, runs=[entry.result.run_id for entry in found])


def _by_fraction(summaries: SummaryCurves) -> dict[str, dict[float, Spread]]:
    return {order: dict(zip(summaries.removed, of, strict=True)) for order, of in spreads(summaries).items()}


_NETWORK = Column[Entry[dict[float, Spread]]](
    "", str, lambda entry: {"network": entry.result.summaries and entry.result.summaries.network}
)


def _without(fraction: float) -> Column[Entry[dict[float, Spread]]]:
    def text(entry: Entry[dict[float, Spread]]) -> str:
        return percent(entry.part[fraction]) if fraction in entry.part else ""

    return Column(f"without {fraction:.0%}", text)
