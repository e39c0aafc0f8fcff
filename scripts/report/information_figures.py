"""Sample information's figures: how scores move, accuracy of summaries, and each run's own, brought along."""

import shutil
from pathlib import Path

from matplotlib.figure import Figure

from erasure.storage import replacing
from sample_info.movement import movement_figure
from scripts.report.figures import MAX_PANELS, Colours, Drawing
from scripts.report.information import Information, accuracy_percent
from train.compare import Result
from train.style import shared_legend

MAX_FIGURES = 3  # of one kind; one of six panels takes seconds
MAX_COPIES = 200  # of runs' own figures, some 100 KB each
_ORDERS = ("#0072B2", "#D55E00", "#009E73", "#4d4d4d", "#CC79A7", "#E69F00")


def information_drawings(information: Information, colours: Colours) -> tuple[list[Drawing], list[str]]:
    """A figure of movements per row and one of summaries per run; and a line on those that there are too many of."""
    rows = list(dict.fromkeys(movement.row for movement in information.movements))
    moved = [(row, [m for m in information.movements if m.row == row]) for row in rows[:MAX_FIGURES]]
    summed = [run for run in information.results() if run[2].get("summaries")]
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
    hidden = {"movement": len(rows) - MAX_FIGURES, "summaries": len(summed) - MAX_FIGURES}
    left_out = [f"figures sample-info-{kind}: {count} left out" for kind, count in hidden.items() if count > 0]
    return drawings, left_out


def _summaries(row: str, eraser: str, result: Result) -> Figure:
    """Accuracy over the share of examples that was removed, a line per order, bands of a standard deviation."""
    summary = result["summaries"]
    figure = Figure(figsize=(6.2, 4.4), layout="constrained")
    ax = figure.add_subplot()
    removed = [100 * fraction for fraction in summary["removed"]]
    for i, order in enumerate(summary["accuracy"]):
        spreads = accuracy_percent(summary, order)
        low, high = ([s.mean + sign * (s.std or 0.0) for s in spreads] for sign in (-1, 1))
        line = _ORDERS[i % len(_ORDERS)]
        ax.plot(removed, [s.mean for s in spreads], marker="o", markersize=4, color=line, label=order)
        ax.fill_between(removed, low, high, color=line, alpha=0.18, linewidth=0)
    ax.set(xlabel="examples removed (%)", ylabel=f"test accuracy of {summary['network']} (%)")
    ax.set_title(f"{row} · {eraser}", fontsize=10, wrap=True)
    shared_legend(figure, [ax])
    return figure


def bring_figures(information: Information, directory: Path) -> tuple[dict[str, Path], list[str]]:
    """Copy runs' scores.png into the report, which then shows them wherever it is taken.

    Returns:
        Run id -> the copy, below `directory`; and a line if there are more than MAX_COPIES.
    """
    found = [(result["run_id"], path) for _, _, result in information.results() if (path := _own(information, result))]
    copies = {}
    for run_id, path in found[:MAX_COPIES]:
        copies[run_id] = directory / "figures" / "scores" / f"{run_id}.png"
        with replacing(copies[run_id]) as temporary:
            shutil.copyfile(path, temporary)
    more = len(found) - len(copies)
    return copies, [f"scores.png of {more:,} runs: left out; report on fewer runs for these"] if more else []


def _own(information: Information, result: Result) -> Path | None:
    path = information.runs[result["run_id"]].directory / "scores.png"
    return path if path.exists() else None
