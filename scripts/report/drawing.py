"""Figures of a report as files, PNG and PDF, and what they have no room for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from erasure.store.storage import replacing
from harness.style import STYLE

MAX_PANELS = 6  # of one figure; more would be too small to print
Colours = Mapping[str, str]
Note = Callable[[str], object]  # takes a line on what is left out


@dataclass(frozen=True)
class Drawing:
    """A figure to draw: the name of its files, what it has no room for, and how."""

    name: str
    hidden: Sequence[str]
    draw: Callable[[], Figure]


def at_most(most: int, drawings: Sequence[Drawing], note: Note) -> Sequence[Drawing]:
    """The first of a kind; there may be as many as runs."""
    if left := drawings[most:]:
        more = f", and {len(left) - 1} more of its kind" if len(left) > 1 else ""
        note(f"figure {left[0].name}: left out{more}")
    return drawings[:most]


def draw_figures(
    drawings: Sequence[Drawing], directory: Path, note: Note, progress: Callable[[int, int], None] = lambda *_: None
) -> list[Path]:
    """Draw to `figures/<name>.png` and `.pdf`; notes what a figure lacks."""
    paths = []
    for i, drawing in enumerate(drawings):
        progress(i, len(drawings))
        if drawing.hidden:
            lacking = f"without {len(drawing.hidden)} of its panels or rows; report on fewer runs for these"
            note(f"figure {drawing.name}: {lacking}")
        with mpl.rc_context(STYLE):
            figure = drawing.draw()
            for kind in ("png", "pdf"):
                paths.append(directory / "figures" / f"{drawing.name}.{kind}")
                with replacing(paths[-1]) as temporary:
                    figure.savefig(temporary, format=kind, dpi=150)
                figure.set_layout_engine("none")  # keep the layout found: finding it takes a third of the time
    return paths
