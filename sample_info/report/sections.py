"""The sections of `python -m sample_info` in a report."""

from collections.abc import Mapping, Sequence

import pandas as pd

from harness.results.arrange import finished
from harness.results.columns import Column
from harness.results.figures import Section, copy_png
from harness.results.read import Note
from sample_info.report.between_runs import compare_scores
from sample_info.report.figures import figures_of
from sample_info.report.suspicious_examples import suspicious_examples
from sample_info.report.tables import tables_of
from sample_info.report.thumbnails import SHOWN

COLUMNS: Mapping[str, Column] = {}  # that a report may be asked for: its tables always have all


def sections(tables: Sequence[pd.DataFrame], _: Sequence[str], note: Note) -> list[Section]:
    """Return a section for each kind of table and for each run's examples; note files of scores that are left out."""
    between = compare_scores(tables, note)
    figures = {f"sample-info-{kind}": figure for kind, figure in figures_of(tables, *between).items()}
    runs = {run.id: run for table in tables for row in finished(table) for run in row["runs"]}
    of_kinds: list[Section] = [
        (table, {"figure": figures[table.name]} if table.name in figures else {})
        for table in tables_of(tables, *between)
    ]
    return of_kinds + [
        (table, {"scores": (copy_png, [runs[run_id].directory / "scores.png"])})
        for run_id, table in suspicious_examples(tables, note, SHOWN).items()
    ]
