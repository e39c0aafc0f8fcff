"""What `python -m sample_info` shows of summaries: accuracy for every order and fraction removed."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from erasure.progress import console
from sample_info.summary_figure import draw_summaries
from sample_info.summary_records import network_of, panel, spreads
from sample_info.table import Result, markdown, rich_table
from train.compare import Grid, Spread

_CAPTION = (
    "Test accuracy (%) after a fraction of the training examples is removed in order of F-SI: mean over seeds (± "
    "standard deviation over seeds and, for the random order, draws); *: in some summary a class has no example left."
)


def print_summaries(grid: Grid) -> None:
    """A table per run that has summaries, on stdout."""
    output, tables = console(), list(_tables(grid))
    for title, headings, lines in tables:
        output.print(title)
        output.print(rich_table(headings, lines))
    if tables:
        output.print(_CAPTION, style="dim", highlight=False)


def summaries_as_markdown(grid: Grid) -> str:
    """The same; empty where there are none."""
    tables = [f"\n{title}\n\n{markdown(headings, lines)}" for title, headings, lines in _tables(grid)]
    return "".join([*tables, f"\n{_CAPTION}\n"]) if tables else ""


def draw_sweep(grid: Grid, path: Path) -> Path | None:
    """All runs' summaries in one figure; none for fewer than two."""
    panels = [panel(result["summaries"], result["config"], name) for name, result in _summarised(grid)]
    return draw_summaries(panels, path) if len(panels) > 1 else None


def _tables(grid: Grid) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Title, headings and lines for every run that has summaries."""
    for name, result in _summarised(grid):
        found = result["summaries"]
        title = f"{name}: summaries, accuracy {network_of(result['config'])}"
        headings = ["removed", *(order.replace("_", " ") for order in found["accuracy"])]
        yield title, headings, _lines(found, result["num_classes"])


def _summarised(grid: Grid) -> Iterator[tuple[str, Result]]:
    """Runs that have summaries, and what to call them."""
    for row in grid.rows:
        for column in (c for c in grid.columns if c in grid.cells[row]):
            result = grid.cells[row][column]
            if result["summaries"] is not None:
                yield f"{row} · {column}", result


def _lines(summaries: Mapping[str, Any], num_classes: int) -> list[list[str]]:
    lines = [[f"{fraction:.0%}"] for fraction in summaries["removed"]]
    for order, accuracy in spreads(summaries).items():
        fewest = [min(seeds) for seeds in zip(*summaries["classes_left"][order], strict=True)]
        for line, spread, classes in zip(lines, accuracy, fewest, strict=True):
            line.append(_percent(spread) + ("" if classes == num_classes else " *"))
    return lines


def _percent(accuracy: Spread) -> str:
    """Of a share between 0 and 1."""
    std = None if accuracy.std is None else 100 * accuracy.std
    return f"{Spread(100 * accuracy.mean, std):.1f}"
