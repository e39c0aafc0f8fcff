"""Shared parts of figures of runs: panels, colours, and the division of large figures into several files.

A figure draws panels, each a title with rows (`harness.results.arrange`), in the colours of their erasers.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from erasure.store.atomic_files import replacing
from erasure.store.regular_files import regular
from harness.results.arrange import colours_of, finished_rows, panels_of, rows_of
from harness.results.columns import Row, first
from harness.results.run_labels import Label
from harness.results.table import Table

Colours = Mapping[Label, str]  # of erasers, in their order
Panel = tuple[str, Sequence[Row]]
Drawing = tuple[Callable[..., Path], Sequence[Any]]  # a function of panels, colours and path, and the panels
Section = tuple[Table, Mapping[str, Drawing]]  # section of a report: a table, and its figures by caption
_PNG = b"\x89PNG\r\n\x1a\n"  # first bytes of a PNG file
MAX_PANELS = 3  # of one figure, besides the costs of erasure, to fit on a printed page


def draw_parts(draw: Callable[..., Path], panels: Sequence[Any], colours: Colours, path: Path) -> list[Path]:
    """Draw `MAX_PANELS` panels per file: the first to `path`, the others to files with -2, -3, ... in their names."""
    return [
        draw(panels[i : i + MAX_PANELS], colours, path.with_stem(f"{path.stem}-{part}") if part > 1 else path)
        for part, i in enumerate(range(0, len(panels), MAX_PANELS), 1)
    ]


def copy_png(paths: Sequence[Path], _: Colours, to: Path) -> Path:
    """Copy to `to`, with the ending .png, the PNG that a run drew when it ended; refuse links and irregular files.

    Raises:
        ValueError: the file is missing, irregular or not a PNG.
    """
    (path,) = paths
    try:
        content = regular(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    if not content.startswith(_PNG):
        raise ValueError(f"{path} is no PNG")
    with replacing(to.with_suffix(".png")) as temporary:
        temporary.write_bytes(content)
    return to.with_suffix(".png")


def draw_each(draw: Callable[..., Path], frames: Sequence[pd.DataFrame], path: Path) -> None:
    """Draw a figure for each table of a sweep, and print the paths; with several tables, add their names to `path`."""
    colours = colours_of(frames)
    for frame in frames:
        to = path if len(frames) == 1 else path.with_stem(f"{path.stem}-{first(frame, 'table')}")
        for drawn in draw_parts(draw, panels_of(frame), colours, to):
            print(f"figure: {drawn}")


def sections_of_tables(
    frames: Sequence[pd.DataFrame],
    table_of: Callable[[pd.DataFrame], Table],
    figures_of: Callable[[pd.DataFrame], Mapping[str, Drawing]],
) -> list[Section]:
    """Return a section for each table, the largest first."""
    by_size = sorted(frames, key=lambda frame: -len(finished_rows(rows_of(frame))))
    return [(table_of(frame), figures_of(frame)) for frame in by_size]


def line_width(colours: Colours, eraser: Label) -> float:
    """Return a line width in points, larger for earlier erasers, so that they show beneath coinciding lines."""
    return max(1.2, 3.2 - 0.5 * [*colours].index(eraser))
