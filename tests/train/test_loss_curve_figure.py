"""Figures of loss curves: titles, and curves without a kink."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from harness.results.arrange import Comparison, arrange, colours_of
from tests.made_up_runs import stored, write_run
from train.final_losses_report import _epoch_axis, draw_loss_curves
from train.result import TrainResult


def comparison(root: Path) -> Comparison:
    """Control and QLEACE, whose second seed never left the plateau."""
    results = []
    for eraser, left in (("control", [True, True]), ("qleace", [True, False])):
        result = write_run(root, "train", dataset="digits", eraser=eraser, seeds=(0, 1)).result
        assert isinstance(result, TrainResult)
        results.append(replace(result, left_plateau=left))
    (only,) = arrange(stored(results))
    return only


def test_loss_curves_have_the_axis_of_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _, **__: drawn.append(figure))
    shown = comparison(tmp_path)
    draw_loss_curves(shown.panels, colours_of([shown]), tmp_path / "loss_curves.png")
    ax = drawn[0].axes[0]
    assert ax.get_title() == "MLP"
    assert ax.get_xlim() == (0, 49)
    assert ax.get_xticks().tolist() == [0, 1, 2, 5, 10, 20]  # of `_epoch_axis`


@pytest.mark.parametrize("last", [0, 4, 60, 1000])
def test_the_axis_of_epochs_has_no_kink(last: int) -> None:
    """The symlog axis was linear up to epoch 10, where every smooth curve got a corner."""
    ax = Figure().add_subplot()
    _epoch_axis(ax, last)
    at = ax.transData.transform(np.column_stack([np.arange(1001.0), np.zeros(1001)]))[:, 0]
    slopes = np.diff(at) * (np.arange(1000) + 1.5)  # of log(1 + epoch): constant
    assert slopes == pytest.approx(np.full(1000, slopes[-1]), rel=0.05)
    ticks = ax.get_xticks()
    assert ticks[0] == 0
    assert len(ticks) == {0: 1, 4: 3, 60: 7, 1000: 8}[last]
    assert not any(label.get_text() == "" for label in ax.get_xticklabels())
