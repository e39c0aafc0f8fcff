"""Axes that figures share."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from conf.groups import choices
from harness.style import colour, epoch_axis


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
