"""Sample information's figures: how scores move and agree, accuracy of summaries, each run's own, brought along."""

import shutil
from pathlib import Path

from matplotlib.figure import Figure

from erasure.store.storage import replacing
from harness.result import InformationResult
from sample_info.report.figures import Panel, agreement_figure, movement_figure, summaries_figure
from sample_info.report.table import summarised
from scripts.report.drawing import MAX_PANELS, Colours, Drawing
from scripts.report.information import Information

MAX_FIGURES = 3  # of one kind; one of six panels takes seconds
MAX_COPIES = 200  # of runs' own figures, some 100 KB each


def information_drawings(information: Information, colours: Colours) -> tuple[list[Drawing], list[str]]:
    """Figures of movements by row, agreement by eraser, summaries by run; and lines on what there is too much of."""
    rows = list(dict.fromkeys(movement.row for movement in information.movements))
    moved = [(row, [m for m in information.movements if m.row == row]) for row in rows[:MAX_FIGURES]]
    summed = summarised(information.grid)
    drawings: list[Drawing] = [
        Drawing(
            f"sample-info-movement-{i + 1}",
            [f"{m.before} to {m.after}" for m in own[MAX_PANELS:]],
            lambda own=own: movement_figure(own[:MAX_PANELS], colours.__getitem__),
        )
        for i, (_, own) in enumerate(moved)
    ]
    drawings += [
        Drawing(f"sample-info-summaries-{i + 1}", [], lambda run=run: _summaries(*run))
        for i, run in enumerate(summed[:MAX_FIGURES])
    ]
    drawings += [
        Drawing(f"sample-info-agreement-{i + 1}", [], lambda one=one: agreement_figure([one]))
        for i, one in enumerate(information.agreements[:MAX_FIGURES])
    ]
    drawn = {"movement": rows, "summaries": summed, "agreement": information.agreements}
    hidden = {kind: len(all_of_them) - MAX_FIGURES for kind, all_of_them in drawn.items()}
    left_out = [f"figures sample-info-{kind}: {count} left out" for kind, count in hidden.items() if count > 0]
    return drawings, left_out


def _summaries(row: str, eraser: str, result: InformationResult) -> Figure:
    """As the run's own, under its name in the report."""
    assert result.summaries is not None
    return summaries_figure([Panel(f"{row} · {eraser}", result.config, result.eraser_fit, result.summaries)])


def bring_figures(information: Information, directory: Path) -> tuple[dict[str, Path], list[str]]:
    """Copy runs' scores.png into the report, which then shows them wherever it is taken.

    Returns:
        Run id -> the copy, below `directory`; and a line if there are more than MAX_COPIES.
    """
    found = [(result.run_id, path) for _, _, result in information.grid.runs() if (path := _own(information, result))]
    copies = {}
    for run_id, path in found[:MAX_COPIES]:
        copies[run_id] = directory / "figures" / "scores" / f"{run_id}.png"
        with replacing(copies[run_id]) as temporary:
            shutil.copyfile(path, temporary)
    more = len(found) - len(copies)
    return copies, [f"scores.png of {more:,} runs: left out; report on fewer runs for these"] if more else []


def _own(information: Information, result: InformationResult) -> Path | None:
    path = information.runs[result.run_id].directory / "scores.png"
    return path if path.exists() else None
