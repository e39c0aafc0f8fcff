"""Axes that figures share."""

import resource
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from conf.groups import choices
from harness.style import colour, epoch_axis, literal, save, shared_legend, wrapped


@pytest.mark.parametrize("columns", [choices("eraser"), ["linear", "quadratic", "cubic", "mlp", "lenet"]])
def test_no_two_columns_have_one_colour(columns: list[str]) -> None:
    drawn = [*columns, "leace (rank_tolerance=0.1)"]
    assert len({colour(column, drawn) for column in drawn}) == len(drawn)


@pytest.mark.parametrize("last", [0, 4, 60, 1000])
def test_the_axis_of_epochs_has_no_kink(last: int) -> None:
    """The symlog axis was linear up to epoch 10, where every smooth curve got a corner."""
    ax = Figure().add_subplot()
    epoch_axis(ax, last)
    at = ax.transData.transform(np.column_stack([np.arange(1001.0), np.zeros(1001)]))[:, 0]
    slopes = np.diff(at) * (np.arange(1000) + 1.5)  # of log(1 + epoch): constant
    assert slopes == pytest.approx(np.full(1000, slopes[-1]), rel=0.05)
    ticks = ax.get_xticks()
    assert ticks[0] == 0
    assert len(ticks) == {0: 1, 4: 3, 60: 7, 1000: 8}[last]
    assert not any(label.get_text() == "" for label in ax.get_xticklabels())


def test_a_legend_of_nothing_is_none() -> None:
    """Where no run of a group had finished, this was a division by zero, and no report."""
    figure = Figure()
    shared_legend(figure, [figure.add_subplot()])
    assert figure.legends == []


def test_names_are_no_mathematics(tmp_path: Path) -> None:
    figure = Figure()
    ax = figure.add_subplot(title=wrapped(r"$\frac{$ costs $", 4.0))
    ax.plot([0, 1], label=r"$\frac{$")
    ax.set_yticks([0], [literal(r"$\frac{$" + 500 * "x")])
    shared_legend(figure, [ax])
    save(figure, tmp_path / "figure.png")
    assert len(ax.get_yticklabels()[0].get_text()) < 250


def test_a_figure_that_does_not_fit_on_the_disk_is_an_os_error(tmp_path: Path) -> None:
    """A PDF cut short was an AttributeError of matplotlib's."""
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
