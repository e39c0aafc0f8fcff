"""Runs that score examples, in the report: their tables, how scores move and agree, each run's own figures."""

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from pathlib import Path

from matplotlib.figure import Figure

from erasure.store.regular import DamagedFileError, regular
from erasure.store.storage import replacing
from harness.result import InformationResult
from harness.results.arrange import Comparison, arrange, comparable
from harness.results.labels import Label
from harness.results.read import INFORMATION, Reading, StoredRun
from harness.results.table import Record, Table
from sample_info.report.comparison import (
    AGREEMENT,
    Agreement,
    Movement,
    Stored,
    agreements,
    few_enough,
    movements,
    read_scores,
)
from sample_info.report.figures import Panel, agreement_figure, movement_figure, summaries_figure
from sample_info.report.summaries import accuracy_of, percent, spreads, summarised
from sample_info.report.table import tables_of
from scripts.report.codelengths import Colours
from scripts.report.figures import MAX_PANELS, Drawing, Note, at_most
from scripts.report.files import file_in

MAX_FIGURES = 3  # of a series; one of six panels takes seconds
MAX_COPIES = 200  # of runs' own figures, some 100 KB each
_PNG = b"\x89PNG\r\n"  # how such a file begins
_SUMMARIES = (
    "Test accuracy (%) once a share of the examples is removed in the order of their F-SI (mean over seeds ± standard "
    "deviation over seeds and, for the random order, draws)."
)


@dataclass(frozen=True)
class Information:
    """Finished runs that score examples.

    Attributes:
        comparison: a row per dataset, model and setting, a column per eraser.
        movements: between the erasers of each row.
        agreements: between the rows of each eraser.
        runs: by run id.
        stored: their scores, by run id.
    """

    comparison: Comparison
    movements: Sequence[Movement]
    agreements: Sequence[Agreement]
    runs: Mapping[str, StoredRun]
    stored: Stored


def read_information(reading: Reading) -> Information:
    """Arrange the runs; adds to the reading's problems what cannot be shown."""
    runs = {run.id: run for run in reading.finished if run.command == INFORMATION}
    comparison = arrange([replace(run, config=comparable(run.config)) for run in runs.values()])
    stored = {run_id: read_scores(run.directory, reading.problems, run.seeds) for run_id, run in runs.items()}
    alike, left_out = few_enough(agreements(comparison, stored))
    reading.problems += left_out
    return Information(comparison, movements(comparison, stored), alike, runs, stored)


def information_drawings(information: Information, colours: Colours, note: Note) -> list[Drawing]:
    """Figures of movements by row, summaries by run, agreement by eraser; notes what there is too much of."""
    by_row: dict[Label, list[Movement]] = {}
    for movement in information.movements:
        by_row.setdefault(movement.row, []).append(movement)
    series = {
        "movement": [
            ([f"{m.before} to {m.after}" for m in own[MAX_PANELS:]],
             functools.partial(movement_figure, own[:MAX_PANELS], colours.__getitem__))
            for own in by_row.values()
        ],
        "summaries": [([], functools.partial(_summary_figure, *run)) for run in summarised(information.comparison)],
        "agreement": [([], functools.partial(agreement_figure, [one])) for one in information.agreements],
    }  # fmt: skip
    drawings = {
        name: [Drawing(f"sample-info-{name}-{i + 1}", *each) for i, each in enumerate(found)]
        for name, found in series.items()
    }
    return [drawing for each in drawings.values() for drawing in at_most(MAX_FIGURES, each, note)]


def _summary_figure(row: Label, eraser: Label, result: InformationResult) -> Figure:
    """Draw the run's own figure, under its name in the report."""
    assert result.summaries is not None
    return summaries_figure(
        [Panel(f"{row.display} · {eraser.display}", result.config, result.eraser_fit, result.summaries)]
    )


def bring_figures(information: Information, directory: Path, note: Note) -> dict[str, Path]:
    """Copy runs' scores.png into the report, which then shows them wherever it is taken; notes what is left out.

    Returns:
        Run id -> the copy, below `directory`.
    """
    own = {
        result.run_id: information.runs[result.run_id].directory for *_, result in information.comparison.information
    }
    found = {run_id: path for run_id, place in own.items() if os.path.lexists(path := place / "scores.png")}
    copies = {}
    for run_id, path in list(found.items())[:MAX_COPIES]:
        try:
            content = regular(path).read_bytes()
            if not content.startswith(_PNG):
                raise DamagedFileError(f"{path} is no PNG")
        except (OSError, DamagedFileError) as error:
            note(f"{error}: left out")
            continue
        copies[run_id] = file_in(directory, "figures/scores", f"{run_id}.png")
        with replacing(copies[run_id]) as temporary:
            temporary.write_bytes(content)
    if (more := len(found) - MAX_COPIES) > 0:
        note(f"scores.png of {more:,} runs: left out; report on fewer runs for these")
    return copies


def sheets(information: Information) -> list[Table]:
    """Return the tables of `python -m sample_info`, agreement and summaries, as the page sorts and filters them."""
    tables = tables_of(information.comparison, information.movements)
    tables |= {"Agreement between networks": _agreements(information), "Summaries": _summaries(information.comparison)}
    return [replace(table, title=title) for title, table in tables.items() if table.rows]


def _agreements(information: Information) -> Table:
    found = [
        (one.eraser, one.names[i], one.names[j], value)
        for one in information.agreements
        for i, j in combinations_with_replacement(range(len(one.names)), 2)
        if (value := one.correlation[i][j]) is not None
    ]
    names = ("eraser", "run", "another_run", "pearson")
    records: list[Record] = [dict(zip(names, (*map(str, labels), value), strict=True)) for *labels, value in found]
    words = ("eraser", "run", "another run")
    rows = [[*(label.display for label in labels), f"{value:.2f}"] for *labels, value in found]
    keys = [[None, None, None, value] for *_, value in found]
    return Table("sample-info-agreement", AGREEMENT, (*words, "correlation"), rows, records, keys, words)


def _summaries(comparison: Comparison) -> Table:
    """Tabulate summaries: a row per run and order, a record per fraction."""
    rows, keys, records = list[list[str]](), list[list[float | None]](), list[Record]()
    runs = [
        (row, eraser, result, curves) for row, eraser, result in comparison.information if (curves := result.summaries)
    ]
    fractions = sorted({fraction for *_, curves in runs for fraction in curves.removed})
    for row, eraser, result, curves in runs:
        about = {"dataset_model": str(row), "eraser": str(eraser), "run_id": result.run_id, "seeds": len(result.seeds)}
        for order, accuracy in spreads(curves).items():
            own = dict(zip(curves.removed, accuracy, strict=True))
            shown = [percent(own[fraction]) if fraction in own else "" for fraction in fractions]
            rows.append([row.display, eraser.display, accuracy_of(result), order, *shown])
            keys.append([None] * 4 + [own[fraction].mean if fraction in own else None for fraction in fractions])
            records += [
                {**about, "network": curves.network, "order": order, "removed": removed, "accuracy_mean": spread.mean,
                 "accuracy_std": spread.std}
                for removed, spread in own.items()
            ]  # fmt: skip
    words = ("dataset · model", "eraser", "accuracy", "removed first")
    headings = [*words, *(f"without {fraction:.0%}" for fraction in fractions)]
    whose = [result.run_id for _, _, result, curves in runs for _ in curves.accuracy]
    return Table("sample-info-summaries", _SUMMARIES, headings, rows, records, keys, words, whose)
