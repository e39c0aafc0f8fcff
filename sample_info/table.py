"""What `python -m sample_info` shows: one line per run, and how example by example scores move between erasers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from rich import box
from rich.table import Table

from erasure.progress import console
from erasure.storage import write_text
from sample_info.movement import Movement
from train.compare import Grid, Spread

Result = Mapping[str, Any]

HEADINGS = (
    "dataset · model",
    "eraser",
    "classes",
    "n",
    "F-SI, mean",
    "median",
    "top tenth",
    "SI, mean",
    "accuracy",
    "notes",
)
_CAPTION = (
    "F-SI: what an example tells the network's predictions that the others do not, SI: what it tells the weights, in "
    "nats at noise sigma, mean over examples (± standard deviation over seeds); top tenth: the share of all F-SI that "
    "the most informative tenth has; accuracy: of the linearised network on test examples. docs/sample_info.md."
)
MOVEMENT_HEADINGS = ("dataset · model", "from", "to", "rank correlation", "median ratio", "still in the top tenth")
_MOVEMENT_CAPTION = (
    "F-SI example by example, mean over seeds: Spearman's rank correlation, the median of the ratio of the second to "
    "the first, and the share of the first's most informative tenth that is in the second's."
)


def print_tables(grid: Grid, movements: Sequence[Movement]) -> None:
    """One line per run on stdout; one per pair of erasers if there are several."""
    output = console(min_width=150)
    output.print(rich_table(HEADINGS, _lines(grid)))
    output.print(_CAPTION, style="dim", highlight=False)
    if movements:
        output.print(rich_table(MOVEMENT_HEADINGS, [movement_cells(m) for m in movements]))
        output.print(_MOVEMENT_CAPTION, style="dim", highlight=False)


def write_tables(grid: Grid, movements: Sequence[Movement], path: Path, appendix: str = "") -> Path:
    """The same as Markdown."""
    text = markdown(HEADINGS, _lines(grid)) + f"\n{_CAPTION}\n"
    if movements:
        rows = markdown(MOVEMENT_HEADINGS, [movement_cells(m) for m in movements])
        text += f"\n{rows}\n{_MOVEMENT_CAPTION}\n"
    write_text(path, text + appendix)
    return path


def movement_cells(movement: Movement) -> list[str]:
    """One line of the second table."""
    rank = "" if movement.spearman is None else f"{movement.spearman:.3f}"
    names = [movement.row, movement.before, movement.after]
    return [*names, rank, f"{movement.median_ratio:.3g}", f"{movement.overlap:.0%}"]


def _lines(grid: Grid) -> list[list[str]]:
    lines = []
    for row in grid.rows:
        for column in (c for c in grid.columns if c in grid.cells[row]):
            result = grid.cells[row][column]
            f_si, si = (result["information"][name] for name in ("f_si_nats", "si_nats"))
            shares = [one["share_of_top_tenth"] or 0.0 for one in f_si]
            lines.append(
                [
                    row,
                    column,
                    _classes(result),
                    f"{result['train_size']:,}",
                    f"{Spread.of([one['mean_nats'] for one in f_si]):.2e}",
                    f"{mean(one['median_nats'] for one in f_si):.2e}",
                    f"{mean(shares):.0%}",
                    f"{Spread.of([one['mean_nats'] for one in si]):.2e}",
                    f"{100 * mean(result['network']['test_accuracy']):.1f} %",
                    "; ".join(_notes(result)),
                ]
            )
    return lines


def _classes(result: Result) -> str:
    classes = result["config"]["sample_info"]["classes"]
    return f"all {result['num_classes']}" if classes == "all" else ", ".join(map(str, classes))


def _notes(result: Result) -> list[str]:
    """Wrong labels found, correlation with references, the score with SGD's noise."""
    information, notes = result["information"], []
    if result["mislabelled"]:
        found = [one["auroc_mislabelled"] for one in information["f_si_nats"]]
        notes.append(f"wrong labels: AUROC {mean(found):.3f}")
    for name, agreements in result["references"].items():
        for kind in ("weight", "prediction"):
            values = [a[kind]["pearson"] for a in agreements if a[kind]["pearson"] is not None]
            notes.append(f"{name}, {kind}s: r = {mean(values):.3f}" if values else f"{name}, {kind}s: no variation")
    if "si_sgd_nats" in information:
        notes.append(f"SI with SGD's noise {mean(one['mean_nats'] for one in information['si_sgd_nats']):.2e}")
    return notes


def rich_table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    """A table for the terminal."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in headings:
        table.add_column(heading)
    for cells in lines:
        table.add_row(*cells)
    return table


def markdown(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table for a page."""
    rows = [headings, ["---"] * len(headings), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
