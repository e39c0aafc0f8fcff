"""Figures of runs: trainings that never left the plateau, and curves without a kink."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from harness.result import TrainResult
from harness.results.arrange import Comparison, arrange
from harness.results.figures import draw_loss_curves
from tests.made_up_runs import write_run


def comparison(root: Path) -> Comparison:
    """Control and QLEACE, whose second seed never left the plateau."""
    results = []
    for eraser, left in (("control", [True, True]), ("qleace", [True, False])):
        result = write_run(root, "train", dataset="digits", eraser=eraser, seeds=(0, 1)).result
        assert isinstance(result, TrainResult)
        results.append(replace(result, left_plateau=left))
    return arrange(results)


def test_loss_curves_say_which_seeds_never_left_the_plateau_and_have_an_axis_without_a_kink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _, **__: drawn.append(figure))
    shown = comparison(tmp_path)
    draw_loss_curves(shown.panels, shown.colours, tmp_path / "loss_curves.png")
    ax = drawn[0].axes[0]
    assert ax.get_title().endswith("‡ QLEACE: 1 of 2 seeds on the plateau")
    at = ax.transData.transform(np.column_stack([np.arange(50.0), np.zeros(50)]))[:, 0]
    slopes = np.diff(at) * (np.arange(49) + 1.5)  # of log(1 + epoch): constant
    assert slopes == pytest.approx(np.full(49, slopes[-1]), rel=0.05)
