"""What `python -m sample_info` shows of summaries: accuracy for every order and fraction removed."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.compare import Grid, Spread
from sample_info.summary_figure import draw_summaries
from sample_info.summary_records import network_of, panel, spreads
from sample_info.table import Result, Section

_CAPTION = (
    "Test accuracy (%) after a fraction of the training examples is removed in order of F-SI: mean over seeds (± "
    "standard deviation over seeds and, for the random order, draws); *: in some summary a class has no example left."
)


def summary_sections(grid: Grid) -> list[Section]:
    """A table per run that has summaries, the last with a caption."""
    found = [_section(name, result) for name, result in _summarised(grid)]
    return [*found[:-1], *(replace(section, caption=_CAPTION) for section in found[-1:])]


def draw_sweep(grid: Grid, path: Path) -> Path | None:
    """All runs' summaries in one figure; none for fewer than two."""
    panels = [panel(result["summaries"], result["config"], name) for name, result in _summarised(grid)]
    return draw_summaries(panels, path) if len(panels) > 1 else None


def _section(name: str, result: Result) -> Section:
    found = result["summaries"]
    headings = ["removed", *(order.replace("_", " ") for order in found["accuracy"])]
    title = f"{name}: summaries, accuracy {network_of(result['config'])}"
    return Section(headings, _lines(found, result["num_classes"]), title=title)


def _summarised(grid: Grid) -> Iterator[tuple[str, Result]]:
    """Runs that have summaries, and what to call them."""
    for row, column, result in grid.runs():
        if result["summaries"] is not None:
            yield f"{row} · {column}", result


def _lines(summaries: Mapping[str, Any], num_classes: int) -> list[list[str]]:
    lines = [[f"{fraction:.0%}"] for fraction in summaries["removed"]]
    for order, accuracy in spreads(summaries).items():
        fewest = [min(seeds) for seeds in zip(*summaries["classes_left"][order], strict=True)]
        for line, spread, classes in zip(lines, accuracy, fewest, strict=True):
            line.append(percent(spread) + ("" if classes == num_classes else " *"))
    return lines


def percent(accuracy: Spread) -> str:
    """Of a share between 0 and 1."""
    std = None if accuracy.std is None else 100 * accuracy.std
    return f"{Spread(100 * accuracy.mean, std):.1f}"
