"""The sections of `python -m sample_info` in a report."""

from collections.abc import Mapping, Sequence

import pandas as pd

from harness.results.arrange import finished_runs
from harness.results.columns import Column
from harness.results.figures import Section, copy_png
from harness.results.read import Note
from sample_info.report.between_runs import compare_scores
from sample_info.report.figures import figures_of
from sample_info.report.suspicious_examples import suspicious_examples
from sample_info.report.tables import tables_of
from sample_info.report.thumbnails import SHOWN

COLUMNS: Mapping[str, Column] = {}  # columns that users may choose: none, as tables always have all


def sections(frames: Sequence[pd.DataFrame], _: Sequence[str], note: Note) -> list[Section]:
    """Return a section per kind of table and per run's suspicious examples; note files that are left out."""
    between = compare_scores(frames, note)
    figures = {f"sample-info-{kind}": figure for kind, figure in figures_of(frames, *between).items()}
    runs = {run.id: run for _, run in finished_runs(frames)}
    of_kinds: list[Section] = [
        (table, {"figure": figures[table.name]} if table.name in figures else {})
        for table in tables_of(frames, *between)
    ]
    return of_kinds + [
        (table, {"scores": (copy_png, [runs[run_id].directory / "scores.png"])})
        for run_id, table in suspicious_examples(frames, note, SHOWN).items()
    ]
