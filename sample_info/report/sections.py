"""The sections of `python -m sample_info` in a report."""

from collections.abc import Mapping, Sequence

from harness.results.arrange import Comparison
from harness.results.columns import Column
from harness.results.figures import Section
from harness.results.read import Note
from sample_info.report.between_runs import compare_scores
from sample_info.report.figures import figures_of
from sample_info.report.tables import tables_of

COLUMNS: Mapping[str, Column] = {}  # that a report may be asked for: its tables always have all


def sections(comparisons: Sequence[Comparison], _: Sequence[str], note: Note) -> list[Section]:
    """Return a section for each kind of table; note files of scores that are left out."""
    between = compare_scores(comparisons, note)
    figures = {f"sample-info-{kind}": figure for kind, figure in figures_of(comparisons, *between).items()}
    return [
        (table, {"figure": figures[table.name]} if table.name in figures else {})
        for table in tables_of(comparisons, *between)
    ]
