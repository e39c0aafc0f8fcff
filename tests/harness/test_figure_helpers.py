"""Figures: axes and legends they share, colours, text in SVG, dark mode, saving."""

import resource
import sys
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from conf.groups import choices
from harness import figure_helpers
from harness.figure_helpers import (
    STYLE,
    band,
    figure_of_panels,
    save,
    shared_legend,
    wrapped,
)
from harness.results.run_labels import ERASER_COLOURS, SPARE_COLOURS, Label, eraser_colours

pytestmark = pytest.mark.usefixtures("real_figures")


@pytest.mark.parametrize("columns", [choices("eraser"), ["linear", "quadratic", "cubic", "mlp", "lenet"]])
def test_no_two_columns_have_one_colour(columns: list[str]) -> None:
    drawn = [*(Label((column,)) for column in columns), Label(("leace",), (("rank_tolerance", 0.1),))]
    assert len({*eraser_colours(drawn).values()}) == len(drawn)


def test_a_legend_of_nothing_is_none() -> None:
    """A group without a finished run was a division by zero, and no report."""
    figure = Figure()
    shared_legend(figure, [figure.add_subplot()])
    assert figure.legends == []


def test_names_are_no_mathematics(tmp_path: Path) -> None:
    figure = Figure()
    ax = figure.add_subplot(title=wrapped(r"$\frac{$ costs $", 4.0))
    ax.plot([0, 1], label=r"$\frac{$")
    ax.set_yticks([0], [wrapped(r"$\frac{$" + 500 * "x")])
    shared_legend(figure, [ax])
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


def luminance(colour: str) -> float:
    """Relative luminance by WCAG 2.1."""
    values = np.array(to_rgb(colour))
    return float(
        np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722)
    )


@pytest.mark.parametrize("light", [*ERASER_COLOURS.values(), *SPARE_COLOURS])
def test_every_eraser_s_colour_is_seen_on_a_dark_page(light: str) -> None:
    dark = figure_helpers._DARK.get(light.lower(), light)
    assert (luminance(dark) + 0.05) / (luminance("#161616") + 0.05) >= 3  # WCAG's least contrast of graphics


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


def test_panels_stand_three_in_a_row(tmp_path: Path) -> None:
    with figure_of_panels(tmp_path / "figure.svg", 4) as (figure, axes):
        places = [ax.get_subplotspec() for ax in axes]
    assert [place and place.get_geometry()[:3] for place in places] == [(2, 3, i) for i in range(4)]
    assert (figure.get_figwidth(), figure.get_figheight()) == pytest.approx((3 * 4.7, 2 * 3.7 + 0.4))


def test_a_band_is_a_sample_standard_deviation_around_the_mean() -> None:
    ax = Figure().add_subplot()
    band(ax, [1, 2], [[1.0, 5.0], [3.0, 5.0]], color="red")
    assert np.asarray(ax.get_lines()[0].get_ydata()).tolist() == [2.0, 5.0]
    limits = ax.collections[0].get_datalim(ax.transData)
    assert (limits.y0, limits.y1) == pytest.approx((2 - 2**0.5, 5.0))
