"""Figures: files that follow dark mode, axes and legends."""

import contextlib
import io
import logging
import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from conf.terminal import printable
from erasure.store.atomic_files import replacing

_DARK = {  # colours of figures in light mode that are others in dark mode, where they would not be seen
    "#000000": "#e6e6e6",
    "#333333": "#d0d0d0",
    "#4d4d4d": "#b8b8b8",
    "#777777": "#a8a8a8",
    "#1b4332": "#5f9e80",
    "#6a3d9a": "#a880d0",
    "#e6e6e6": "#3a3a3a",
    "#ffffff": "#161616",
}
STYLE: Any = {  # matplotlib rc parameters
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # fonts that publishers accept
    "svg.fonttype": "none",  # text, not outlines
}

_PAD_INCHES = 0.1  # around all that is drawn
_LONGEST_LABEL = 200  # characters


@contextlib.contextmanager
def figure_at(path: Path, width: float, height: float, dpi: float = 200) -> Iterator[Figure]:
    """Yield a figure of a size in inches; write it to `path`, and to a PDF of the same name, when the block ends."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        save(figure, path, dpi)


@contextlib.contextmanager
def figure_of_panels(path: Path, count: int) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a figure, to be written as `figure_at` does, and its panels, three per row with room for a legend above."""
    wide, high = min(3, count), math.ceil(count / 3)
    with figure_at(path, max(6.0, 4.7 * wide), 3.7 * high + 0.4) as figure:
        yield figure, [figure.add_subplot(high, wide, i + 1) for i in range(count)]


def save(figure: Figure, path: Path, dpi: float = 200) -> None:
    """Write a figure, without its empty margins, to `path` and, to print, to a PDF next to it.

    An SVG has no background and follows the reader's light or dark mode.
    """
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # which lists every glyph that it keeps
    figure.set_dpi(dpi)
    figure.draw_without_rendering()  # arranges it, once for both files
    figure.set_layout_engine(None)
    margins = figure.get_tightbbox().padded(_PAD_INCHES)
    for each in dict.fromkeys([path, path.with_suffix(".pdf")]):
        drawn = io.BytesIO()  # on a full disk, matplotlib's own files end in other errors
        svg = each.suffix == ".svg"
        figure.savefig(drawn, format=each.suffix[1:], dpi=dpi, bbox_inches=margins, transparent=svg)
        content = drawn.getvalue()
        with replacing(each) as temporary:
            temporary.write_bytes(content.replace(b"</style>", _dark_mode() + b"</style>", 1) if svg else content)


def _dark_mode() -> bytes:
    """Return CSS that gives a figure's greys their dark colours; matplotlib writes each colour into a style attribute.

    Black is what the attribute leaves out.
    """
    rules = [f":root {{ color-scheme: light dark; fill: {_DARK['#000000']} }}"]
    for light, dark in _DARK.items():
        rules += [f'[style*="{kind}: {light}"] {{ {kind}: {dark} !important }}' for kind in ("fill", "stroke")]
    return f"@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}".encode()


def draw_image(ax: Axes, image: Tensor) -> None:
    """Draw an image [C, H, W] in 0..1, of three channels in colours, else in grey levels, without axes."""
    image = image.detach().cpu().float().clamp(0, 1)
    drawn = image.permute(1, 2, 0) if len(image) == 3 else image.mean(0)
    ax.imshow(drawn.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    hide_axes(ax)


def hide_axes(ax: Axes) -> None:
    """Hide ticks and frame, as for an image, and save the time that it takes to measure them."""
    for part in (ax.xaxis, ax.yaxis, ax.spines[:]):
        part.set_visible(False)


def name_row(ax: Axes, name: str, **options: Any) -> None:
    """Write the name of a row of images to the left of its first."""
    ax.yaxis.set_visible(True)
    ax.set_yticks([])
    ax.set_ylabel(wrapped(name), fontsize=9, **options)


def chance_line(ax: Axes, bits: float, label: str) -> None:
    """Draw a dashed line at the loss of a predictor that knows nothing; call it when all else is drawn."""
    ax.set_ylim(0, max(1.12 * bits, ax.get_ylim()[1]))
    ax.axhline(bits, color="#999999", linewidth=1, linestyle=(0, (4, 3)))
    ax.annotate(
        f"{label}, {bits:.2f} bits", (0.99, bits), xycoords=("axes fraction", "data"), xytext=(0, 3),
        textcoords="offset points", ha="right", va="bottom", color="#777777", fontsize=9,
    )  # fmt: skip


def wrapped(text: str, inches: float = 100.0) -> str:
    """Return anybody's words as lines that fit at the fonts' usual size, without their middle where they are long.

    They are no mathematics, and have no control characters, which no SVG may hold.
    """
    half = _LONGEST_LABEL // 2
    short = text if len(text) <= _LONGEST_LABEL else f"{text[:half]} … {text[-half:]}"
    plain = printable(short).replace("$", r"\$")
    return textwrap.fill(plain, max(12, int(11 * inches)), break_on_hyphens=False)


def band(ax: Axes, x: Any, values: Any, **line: Any) -> None:
    """Draw the mean of several lines, `values` [S, m] over `x` [m], and a band of a standard deviation around it."""
    lines = np.array(values)
    middle = lines.mean(0)
    deviation = lines.std(0, ddof=1) if len(lines) > 1 else np.zeros_like(middle)
    ax.plot(x, middle, **line)
    ax.fill_between(x, middle - deviation, middle + deviation, color=line["color"], alpha=0.18, linewidth=0)


def shared_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend above all panels, where it covers no data."""
    handles: dict[str, Artist] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(wrapped(label, 0.8 * figure.get_figwidth()), handle)
    if not handles:
        return
    entry_inches = 0.6 + 0.09 * max(len(line) for label in handles for line in label.split("\n"))
    columns = max(1, min(6, int(figure.get_figwidth() / entry_inches)))
    figure.legend([*handles.values()], [*handles], loc="outside upper center", ncols=columns)
