"""Helpers for figures: files that follow dark mode, axes, names of lines, notes."""

import contextlib
import io
import logging
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from torch import Tensor

from conf.terminal import printable
from erasure.store.atomic_files import replacing

_DARK = {  # colours in light mode, and their replacements in dark mode
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

WIDTH = 6.2  # inches of a figure; narrow enough for legible text on a phone
MAX_NAMED_LINES = 8  # per panel; more are named in a legend
_TEXT_CONTRAST = 4.5  # minimum contrast of text and page by WCAG 2.1
_PAD_INCHES = 0.1  # margin around the drawing
_LONGEST_LABEL = 200  # characters
_NAME_INCHES, _NAME_LINE_INCHES = 1.7, 0.17  # width of a line's name, and height of one row of its text
_LINE_NAME = "_line_name"  # label of the texts that name lines, which `save` moves apart


@contextlib.contextmanager
def figure_at(path: Path, width: float, height: float, dpi: float = 200) -> Iterator[Figure]:
    """Yield a figure of this size in inches; when the block ends, write it to `path` and to a PDF of the same name."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        figure.set_layout_engine("constrained", h_pad=0.1)  # inches; with less, a title touches the axis above it
        yield figure
        save(figure, path, dpi)


@contextlib.contextmanager
def figure_of_panels(path: Path, count: int, last_row_inches: float = 3.7) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a figure and its panels, one above the other; when the block ends, write it like `figure_at`."""
    heights = [3.7] * (count - 1) + [last_row_inches]
    with figure_at(path, WIDTH, sum(heights)) as figure:
        yield figure, [*figure.subplots(count, 1, squeeze=False, height_ratios=heights)[:, 0]]


def save(figure: Figure, path: Path, dpi: float = 200) -> None:
    """Write a figure, without its empty margins, to `path` and to a PDF of the same name for print.

    An SVG has no background and follows the reader's light or dark mode.
    """
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # it logs every glyph that it keeps
    figure.set_dpi(dpi)
    figure.draw_without_rendering()  # computes the layout once for both files
    figure.set_layout_engine(None)
    for ax in figure.axes:
        _move_names_apart(ax)
    margins = figure.get_tightbbox().padded(_PAD_INCHES)
    for each in dict.fromkeys([path, path.with_suffix(".pdf")]):
        drawn = io.BytesIO()  # if the disk is full, matplotlib's own writing raises other errors
        svg = each.suffix == ".svg"
        figure.savefig(drawn, format=each.suffix[1:], dpi=dpi, bbox_inches=margins, transparent=svg)
        content = drawn.getvalue()
        with replacing(each) as temporary:
            dark = _dark_mode(content.decode()).encode() if svg else b""
            temporary.write_bytes(content.replace(b"</style>", dark + b"</style>", 1))


def _dark_mode(svg: str) -> str:
    """Return CSS that replaces a figure's colours in dark mode. Other colours change only in text, to be legible.

    Matplotlib writes each colour into a style attribute, except black, the default.
    """
    rules = [f":root {{ color-scheme: light dark; fill: {_DARK['#000000']} }}"]
    for light, dark in _DARK.items():
        rules += [f'[style*="{kind}: {light}"] {{ {kind}: {dark} !important }}' for kind in ("fill", "stroke")]
    lines, texts = (
        sorted({*re.findall(f"{part}: (#[0-9a-f]{{6}})", svg)} - {*_DARK}) for part in ("stroke", "<text [^>]*fill")
    )
    of_lines = {legible(colour): colour for colour in lines}
    for colour in texts:
        dark = legible(of_lines.get(colour, colour), _DARK["#ffffff"])
        rules.append(f'text[style*="fill: {colour}"] {{ fill: {dark} !important }}')
    return f"@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}"


def legible(colour: str, page: str = "#ffffff") -> str:
    """Return a colour in which text is legible on a page: mixed with black, or on a dark page with white."""
    ink = 0.0 if _luminance(to_rgb(page)) > 0.5 else 1.0
    mixed = ((1 - share) * np.array(to_rgb(colour)) + share * ink for share in np.linspace(0, 1, 21))
    return next(to_hex(rgb.tolist()) for rgb in mixed if contrast(to_hex(rgb.tolist()), page) >= _TEXT_CONTRAST)


def contrast(a: str, b: str) -> float:
    """Return the contrast of two colours, 1 to 21 (WCAG 2.1)."""
    dark, light = sorted(map(_luminance, map(to_rgb, (a, b))))
    return (light + 0.05) / (dark + 0.05)


def _luminance(rgb: tuple[float, float, float]) -> float:
    linear = (value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in rgb)
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def draw_image(ax: Axes, image: Tensor) -> None:
    """Draw an image [C, H, W] in 0..1 without axes: in colour if it has three channels, else in grey."""
    image = image.detach().cpu().float().clamp(0, 1)
    drawn = image.permute(1, 2, 0) if len(image) == 3 else image.mean(0)
    ax.imshow(drawn.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    hide_axes(ax)


def hide_axes(ax: Axes) -> None:
    """Hide ticks and frame, e.g. for an image; this also saves the time of laying out ticks."""
    for part in (ax.xaxis, ax.yaxis, ax.spines[:]):
        part.set_visible(False)


def name_row(ax: Axes, name: str, **options: Any) -> None:
    """Write the name of a row of images to the left of its first image."""
    ax.yaxis.set_visible(True)
    ax.set_yticks([])
    ax.set_ylabel("\n".join(map(wrapped, name.splitlines())), fontsize=9, **options)


def chance_line(ax: Axes, bits: float, label: str) -> None:
    """Draw a dashed line at the loss of chance, to be named by `name_lines`; call this after all other drawing."""
    ax.set_ylim(0, max(1.05 * bits, ax.get_ylim()[1]))
    ax.axhline(bits, color="#999999", linewidth=1, linestyle=(0, (4, 3)), label=f"{label} {bits:.2f}")


def wrapped(text: str, inches: float = 100.0) -> str:
    """Return possibly untrusted text as lines that fit at the usual font size, truncated in the middle if long.

    Dollar signs are escaped because they start mathematics. Control characters, which SVG forbids, become blanks.
    """
    half = _LONGEST_LABEL // 2
    short = text if len(text) <= _LONGEST_LABEL else f"{text[:half]} … {text[-half:]}"
    plain = printable(short).replace("$", r"\$")
    return textwrap.fill(plain, max(12, int(11 * inches)), break_on_hyphens=False)


def line_style(x: Sequence[float]) -> str:
    """Return the line style of a curve over `x`: no line for one or two points."""
    return "-" if len(x) > 2 else "none"


def band(ax: Axes, x: Sequence[float], values: Any, **line: Any) -> None:
    """Draw the mean of several lines, `values` [S, m] over `x` [m], with a band of one standard deviation.

    One or two points get error bars instead of a line with a band.
    """
    lines = np.array(values)
    middle = lines.mean(0)
    deviation = lines.std(0, ddof=1) if len(lines) > 1 else np.zeros_like(middle)
    if line_style(x) == "none":
        look: Any = {"marker": "o", "capsize": 3} | line | {"linestyle": "none"}
        ax.errorbar(x, middle, deviation, **look)
        return
    ax.plot(x, middle, **line)
    ax.fill_between(x, middle - deviation, middle + deviation, color=line["color"], alpha=0.18, linewidth=0)


def note_below(figure: Figure, text: str) -> None:
    """Write a note under all panels."""
    figure.supxlabel(wrapped(text, 1.2 * figure.get_figwidth()), x=0.01, ha="left", fontsize=9)


def name_lines(figure: Figure, axes: Sequence[Axes]) -> None:
    """Write each line's name at its right end, in the line's colour or a darker one.

    If there are more names than fit, draw a legend above all panels instead.
    """
    named = {ax: _ends_of_lines(ax) for ax in axes}
    for ax, ends in named.items():
        place = ax.get_subplotspec()
        room = figure.get_figheight() / (place.get_gridspec().nrows if place else 1) - 0.9  # without titles and ticks
        needed = _NAME_LINE_INCHES * sum(1 + name.count("\n") for name, *_ in ends)
        if len(ends) > MAX_NAMED_LINES or needed > room:
            _legend(figure, axes)
            return
    for ax, ends in named.items():
        for name, colour, end in ends:
            ax.annotate(
                name, end, xytext=(1.03, 0.5), textcoords="axes fraction", va="center", annotation_clip=False,
                fontsize=9, color=legible(colour), label=_LINE_NAME,
                arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.8, "linestyle": ":", "relpos": (0, 0.5),
                            "shrinkA": 1, "shrinkB": 2},
            )  # fmt: skip


def _ends_of_lines(ax: Axes) -> list[tuple[str, str, tuple[float, float]]]:
    """Return name, colour and last point of each labelled line that has points."""
    ends = []
    for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
        line = handle[0] if isinstance(handle, ErrorbarContainer) else handle
        if not isinstance(line, Line2D):
            continue
        along, _ = line.get_transform().contains_branch_seperately(ax.transData)  # not for a line across all of a panel
        x = line.get_xdata() if along else ax.get_xlim()
        points = np.column_stack([np.asarray(x, float), np.asarray(line.get_ydata(), float)])
        points = points[np.isfinite(points).all(1)]
        if len(points):
            ends.append((wrapped(label, _NAME_INCHES), to_hex(line.get_color()), (points[-1, 0], points[-1, 1])))
    return ends


def _move_names_apart(ax: Axes) -> None:
    """Move the names of lines apart, as little as possible, within the height of the panel.

    After subtracting the heights of the names, this is the isotonic regression of the lines' ends.
    """
    from scipy.optimize import isotonic_regression

    names = [text for text in ax.texts if isinstance(text, Annotation) and text.get_label() == _LINE_NAME]
    if not names:
        return
    ends = [ax.transAxes.inverted().transform(ax.transData.transform(name.xy))[1] for name in names]
    heights = [Text.get_window_extent(name).height * 1.1 / ax.bbox.height for name in names]
    order = np.argsort(ends, kind="stable")
    at, high = np.nan_to_num(ends)[order], np.array(heights)[order]  # a logarithmic axis has no position for zero
    steps = np.concatenate([[0], np.cumsum((high[1:] + high[:-1]) / 2)])  # distances from the middle of the lowest name
    lowest = high[0] / 2
    placed = np.clip(isotonic_regression(at - steps).x, lowest, max(lowest, 1 - high[-1] / 2 - steps[-1])) + steps
    for i, y in zip(order, placed, strict=True):
        names[i].xyann = (1.03, float(y))


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Draw one legend above all panels, where it covers no data."""
    handles: dict[str, Artist] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(wrapped(label, 0.8 * figure.get_figwidth()), handle)
    entry_inches = 0.6 + 0.09 * max(len(line) for label in handles for line in label.split("\n"))
    columns = max(1, min(6, int(figure.get_figwidth() / entry_inches)))
    lines = math.ceil(len(handles) / columns) * max(1 + label.count("\n") for label in handles)
    figure.set_figheight(figure.get_figheight() + 0.2 * lines)  # so that panels keep their size
    figure.legend([*handles.values()], [*handles], loc="outside upper center", ncols=columns)
