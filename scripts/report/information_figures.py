"""Sample information's figures: how scores move and agree, accuracy of summaries, each run's own, brought along."""

import functools
import shutil
from pathlib import Path

from matplotlib.figure import Figure

from erasure.store.storage import replacing
from harness.result import InformationResult
from sample_info.report.comparison import Movement
from sample_info.report.figures import Panel, agreement_figure, movement_figure, summaries_figure
from sample_info.report.summaries import summarised
from scripts.report.drawing import MAX_PANELS, Colours, Drawing, Note, at_most
from scripts.report.information import Information

MAX_FIGURES = 3  # of one kind; one of six panels takes seconds
MAX_COPIES = 200  # of runs' own figures, some 100 KB each


def information_drawings(information: Information, colours: Colours, note: Note) -> list[Drawing]:
    """Figures of movements by row, summaries by run, agreement by eraser; notes what there is too much of."""
    by_row: dict[str, list[Movement]] = {}
    for movement in information.movements:
        by_row.setdefault(movement.row, []).append(movement)
    kinds = {
        "movement": [
            ([f"{m.before} to {m.after}" for m in own[MAX_PANELS:]],
             functools.partial(movement_figure, own[:MAX_PANELS], colours.__getitem__))
            for own in by_row.values()
        ],
        "summaries": [([], functools.partial(_summaries, *run)) for run in summarised(information.grid)],
        "agreement": [([], functools.partial(agreement_figure, [one])) for one in information.agreements],
    }  # fmt: skip
    drawings = {
        kind: [Drawing(f"sample-info-{kind}-{i + 1}", *each) for i, each in enumerate(found)]
        for kind, found in kinds.items()
    }
    return [drawing for kind in drawings.values() for drawing in at_most(MAX_FIGURES, kind, note)]


def _summaries(row: str, eraser: str, result: InformationResult) -> Figure:
    """As the run's own, under its name in the report."""
    assert result.summaries is not None
    return summaries_figure([Panel(f"{row} · {eraser}", result.config, result.eraser_fit, result.summaries)])


def bring_figures(information: Information, directory: Path, note: Note) -> dict[str, Path]:
    """Copy runs' scores.png into the report, which then shows them wherever it is taken; notes if there are too many.

    Returns:
        Run id -> the copy, below `directory`.
    """
    own = {result.run_id: information.runs[result.run_id].directory for *_, result in information.grid.runs()}
    found = [(run_id, path) for run_id, place in own.items() if (path := place / "scores.png").exists()]
    copies = {}
    for run_id, path in found[:MAX_COPIES]:
        copies[run_id] = directory / "figures" / "scores" / f"{run_id}.png"
        with replacing(copies[run_id]) as temporary:
            shutil.copyfile(path, temporary)
    if more := len(found) - len(copies):
        note(f"scores.png of {more:,} runs: left out; report on fewer runs for these")
    return copies
