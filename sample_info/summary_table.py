"""What `python -m sample_info` shows of summaries: accuracy for every order and fraction removed."""

from collections.abc import Iterator, Mapping
from typing import Any

from erasure.progress import console
from sample_info.summary_records import spreads
from sample_info.table import classes_of, markdown, rich_table
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


def _tables(grid: Grid) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Title, headings and lines for every run that has summaries."""
    for row in grid.rows:
        for column in (c for c in grid.columns if c in grid.cells[row]):
            result = grid.cells[row][column]
            if (found := result["summaries"]) is not None:
                title = f"{row} · {column} · {classes_of(result)}: summaries, accuracy {_network(result)}"
                headings = ["removed", *(order.replace("_", " ") for order in found["accuracy"])]
                yield title, headings, _lines(found, result["num_classes"])


def _network(result: Mapping[str, Any]) -> str:
    """Whose accuracy it is."""
    if result["summaries"]["network"] == "linearized":
        return "of the linearised network"
    other = result["config"]["sample_info"]["summary_model"] or {}
    changed = ", ".join(f"{key}={value}" for key, value in other.items())
    return f"of the network trained again{f' ({changed})' if changed else ''}"


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
