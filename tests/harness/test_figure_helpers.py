"""Figures: names of lines, ticks and notes, colours, text in SVG, dark mode, saving."""

import re
import resource
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from conf.groups import choices
from harness.figure_helpers import (
    MAX_NAMED_LINES,
    STYLE,
    band,
    contrast,
    figure_of_panels,
    legible,
    name_lines,
    note_below,
    save,
    wrapped,
)
from harness.results.run_labels import Label, eraser_colours

pytestmark = pytest.mark.usefixtures("real_figures")


@pytest.mark.parametrize("columns", [choices("eraser"), ["linear", "quadratic", "cubic", "mlp", "lenet"]])
def test_no_two_columns_have_one_colour(columns: list[str]) -> None:
    drawn = [*(Label((column,)) for column in columns), Label(("leace",), (("rank_tolerance", 0.1),))]
    assert len({*eraser_colours(drawn).values()}) == len(drawn)


def drawn_again(figure: Figure) -> Figure:
    """Return a figure that is drawn at its resolution, after the SVG was at another one."""
    figure.draw_without_rendering()
    return figure


def overlapping(texts: Sequence[Text]) -> list[tuple[str, str]]:
    """Return the pairs of texts, as they were drawn, whose boxes overlap."""
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in texts]
    return [(a, b) for (a, of_a), (b, of_b) in combinations(boxes, 2) if of_a.overlaps(of_b)]


@pytest.mark.parametrize("ends", [[0.5, 0.5, 0.5], [0.0, 0.01, 0.02, 0.9], [1.0] * MAX_NAMED_LINES, [0.7, 0.1]])
def test_each_line_has_its_name_beside_it_and_names_do_not_overlap(ends: list[float], tmp_path: Path) -> None:
    with figure_of_panels(tmp_path / "figure.svg", 1) as (figure, (ax,)):
        ax.set_ylim(0, 1)
        for i, end in enumerate(ends):
            ax.plot([0, 1, 2], [0.3, end, np.nan], color=f"C{i}", label=f"line {i}")
        name_lines(figure, [ax])
    assert [(text.get_text(), text.get_color()) for text in ax.texts] == [
        (f"line {i}", legible(to_hex(f"C{i}"))) for i in range(len(ends))
    ]  # fmt: skip
    assert drawn_again(figure).legends == []
    assert overlapping(ax.texts) == []
    places = [Text.get_window_extent(text) for text in ax.texts]
    assert min(place.x0 for place in places) > ax.bbox.x1
    assert min(place.y0 for place in places) > ax.bbox.y0 - 1
    assert max(place.y1 for place in places) < ax.bbox.y1 + 1
    heights = [place.y0 for place in places]
    assert [heights[i] for i in np.argsort(ends, kind="stable")] == sorted(heights)


def test_a_name_with_room_stands_at_the_end_of_its_line(tmp_path: Path) -> None:
    with figure_of_panels(tmp_path / "figure.svg", 1) as (figure, (ax,)):
        ax.set_ylim(0, 1)
        ax.errorbar([1, 2], [0.5, 0.25], [0.1, 0.1], label="low")
        ax.plot([1, 2], [0.5, 0.75], label="high")
        name_lines(figure, [ax])
    for text in drawn_again(figure).axes[0].texts:
        box = Text.get_window_extent(text)
        end = ax.transData.inverted().transform((0, (box.y0 + box.y1) / 2))[1]
        assert end == pytest.approx({"low": 0.25, "high": 0.75}[text.get_text()], abs=0.01)


@pytest.mark.parametrize(
    ("count", "name"), [(MAX_NAMED_LINES + 1, "line"), (6, "line " + 5 * "that is named at length ")]
)
def test_more_names_than_fit_are_a_legend(count: int, name: str, tmp_path: Path) -> None:
    with figure_of_panels(tmp_path / "figure.svg", 1) as (figure, (ax,)):
        for i in range(count):
            ax.plot([0, 1], [0, i], label=f"{i} {name}")
        name_lines(figure, [ax])
    (legend,) = figure.legends
    assert len(legend.get_texts()) == count
    assert len(ax.texts) == 0


def test_lines_without_points_have_no_names() -> None:
    """A group without a finished run was a division by zero, and no report."""
    figure = Figure()
    ax = figure.add_subplot()
    ax.plot([], [], label="none")
    name_lines(figure, [ax])
    assert figure.legends == []
    assert len(ax.texts) == 0


def test_a_note_stands_under_all_panels(tmp_path: Path) -> None:
    with figure_of_panels(tmp_path / "figure.svg", 2) as (figure, axes):
        for ax in axes:
            ax.set_xlabel("epoch")
        note_below(figure, "what all panels share")
    (note,) = (text for text in drawn_again(figure).findobj(Text) if text.get_text() == "what all panels share")
    assert note.get_window_extent().y1 < min(ax.xaxis.label.get_window_extent().y0 for ax in axes)


@pytest.mark.parametrize(("sizes", "style"), [([10, 20], "None"), ([10], "None"), ([10, 20, 40], "-")])
def test_two_points_are_no_line(sizes: list[int], style: str) -> None:
    ax = Figure().add_subplot()
    band(ax, sizes, [sizes, sizes], color="red", marker="o", label="sizes")
    drawn = next(line for line in ax.get_lines() if np.size(line.get_xdata()) == len(sizes))
    assert drawn.get_linestyle() == style
    assert ax.get_legend_handles_labels()[1] == ["sizes"]


def test_names_are_no_mathematics(tmp_path: Path) -> None:
    figure = Figure()
    ax = figure.add_subplot(title=wrapped(r"$\frac{$ costs $", 4.0))
    ax.plot([0, 1], label=r"$\frac{$")
    ax.set_yticks([0], [wrapped(r"$\frac{$" + 500 * "x")])
    name_lines(figure, [ax])
    save(figure, tmp_path / "figure.png")
    assert len(ax.get_yticklabels()[0].get_text()) < 250


def test_an_svg_keeps_text_as_text_and_has_no_background_and_colours_of_its_own_in_dark_mode(tmp_path: Path) -> None:
    with mpl.rc_context(STYLE):
        figure = Figure()
        ax = figure.add_subplot(title=wrapped("LEACE & <co>\x1b[31m"))
        ax.plot([0, 1], color="white")
        save(figure, tmp_path / "figure.svg")
    root = ElementTree.parse(tmp_path / "figure.svg").getroot()
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "LEACE & <co> [31m" in texts
    sheet = next(root.iter("{http://www.w3.org/2000/svg}style")).text or ""
    assert "@media (prefers-color-scheme: dark)" in sheet
    assert '[style*="stroke: #ffffff"]' in sheet
    faces = [path for path in root.iter("{http://www.w3.org/2000/svg}path") if "fill: #" in path.get("style", "")]
    assert faces == []
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("colour", ["#e69f00", "#8c564b", "#fde725", "#440154"])
def test_names_of_lines_are_legible_in_light_and_dark_mode(colour: str, tmp_path: Path) -> None:
    with figure_of_panels(tmp_path / "figure.svg", 1) as (figure, (ax,)):
        ax.plot([0, 1], color=colour, label="line")
        name_lines(figure, [ax])
    svg = (tmp_path / "figure.svg").read_text()
    (light,) = re.findall(r"<text [^>]*fill: (#\w+)[^>]*>line</text>", svg)
    (dark,) = re.findall(rf'\[style\*="fill: {light}"\] {{ fill: (#\w+)', svg)
    assert contrast(light, "#ffffff") >= 4.5  # WCAG's least contrast of text
    assert contrast(dark, "#161616") >= 4.5
    assert contrast("#ffffff", "#000000") == pytest.approx(21)  # by WCAG, as that of #767676 and white is 4.54
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


def test_a_figure_that_does_not_fit_on_the_disk_is_an_os_error(tmp_path: Path, monkeypatch) -> None:
    """A PDF cut short was an AttributeError of matplotlib's."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an import would leave half a file for all later ones
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    figure = Figure()
    figure.add_subplot().plot(np.arange(5000) % 7)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            save(figure, tmp_path / "figure.pdf")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_panels_are_one_above_the_other_and_no_figure_is_wider_for_having_more(tmp_path: Path) -> None:
    for count in (1, 3):
        with figure_of_panels(tmp_path / "figure.svg", count) as (figure, axes):
            places = [ax.get_subplotspec() for ax in axes]
        assert [place and place.get_geometry()[:3] for place in places] == [(count, 1, i) for i in range(count)]
        assert (figure.get_figwidth(), figure.get_figheight()) == pytest.approx((6.2, count * 3.7))


def test_a_band_is_a_sample_standard_deviation_around_the_mean() -> None:
    ax = Figure().add_subplot()
    band(ax, [1, 2, 3], [[1.0, 5.0, 5.0], [3.0, 5.0, 5.0]], color="red")
    assert np.asarray(ax.get_lines()[0].get_ydata()).tolist() == [2.0, 5.0, 5.0]
    limits = ax.collections[0].get_datalim(ax.transData)
    assert (limits.y0, limits.y1) == pytest.approx((2 - 2**0.5, 5.0))
