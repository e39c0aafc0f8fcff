"""Runs that score examples, arranged for the report: how scores move between erasers and agree between networks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.compare import Grid, arrange
from harness.result import InformationResult
from sample_info.report.comparison import (
    Agreement,
    Movement,
    Stored,
    agreements,
    few_enough,
    movements,
    read_scores_or_note,
)
from scripts.report.groups import comparable
from scripts.report.read import INFORMATION, Found, Reading


@dataclass(frozen=True)
class Information:
    """Finished runs that score examples.

    Attributes:
        grid: a row per dataset, model and setting, a column per eraser.
        movements: between the erasers of each row.
        agreements: between the rows of each eraser.
        runs: by run id.
        stored: their scores, by run id.
    """

    grid: Grid[InformationResult]
    movements: Sequence[Movement]
    agreements: Sequence[Agreement]
    runs: Mapping[str, Found]
    stored: Stored


def read_information(reading: Reading) -> Information:
    """Arrange the runs; adds to the reading's problems what cannot be shown."""
    runs = {run.id: run for run in reading.finished if run.verb == INFORMATION}
    found = [run.result for run in runs.values()]
    results = [replace(r, config=comparable(r.config)) for r in found if isinstance(r, InformationResult)]
    grid = arrange(results)
    stored = {run_id: read_scores_or_note(run.directory, reading.problems) for run_id, run in runs.items()}
    moved = movements(grid, stored)
    alike, left_out = few_enough(agreements(grid, stored))
    reading.problems += left_out
    return Information(grid, moved, alike, runs, stored)
