"""The table and the figure of networks trained on everything."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from harness.results.arrange import arrange, colours_of, panels_of
from harness.results.columns import difference
from tests.made_up_runs import stored, write_run
from train.final_losses_report import _epoch_axis, draw_loss_curves, table_of
from train.result import TrainResult


@pytest.fixture
def results(tmp_path: Path) -> list[TrainResult]:
    """Control and QLEACE, whose second seed never left the plateau."""
    results = []
    for eraser, left in (("control", [True, True]), ("qleace", [True, False])):
        result = write_run(tmp_path, "train", dataset="digits", eraser=eraser, seeds=(0, 1)).result
        assert isinstance(result, TrainResult)
        results.append(replace(result, left_plateau=left))
    return results


def test_final_losses_are_shown_and_what_they_rest_on_is_said(results: list[TrainResult]) -> None:
    (frame,) = arrange(stored(results))
    table = table_of(frame)
    assert list(table.headings) == [
        "model", "eraser", "test loss (bits)", "Δ of test loss", "accuracy (%)", "training loss", "entropy", "seeds",
    ]  # fmt: skip
    assert "QLEACE: in 1 of 2 trainings on the whole split the training loss stayed" in table.caption()
    assert not [name for name in table.records[0] if name.startswith("bits_per_label")]


def test_differences_are_those_that_results_name(results: list[TrainResult], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainResult, "compared", ("accuracy",))
    accuracies = ([0.5, 0.6], [0.3, 0.5])
    changed = [
        replace(one, final=replace(one.final, accuracy=accuracy))
        for one, accuracy in zip(results, accuracies, strict=True)
    ]
    (frame,) = arrange(stored(changed))
    column = difference("Δ of accuracy", "accuracy")
    table = table_of(frame, [column.name], {column.name: column})
    assert [row[2] for row in table.rows] == ["", "-0.150 ± 0.050"]  # -0.2 and -0.1
    assert table.records[1]["accuracy_p_holm"] == pytest.approx(0.2048, abs=1e-4)  # t = 3, one degree of freedom
    assert "± of Δ: standard error, paired by seed." in table.caption()


def test_a_column_of_another_command_is_not_shown(results: list[TrainResult]) -> None:
    (frame,) = arrange(stored(results))
    assert list(table_of(frame, ["bits_per_label", "accuracy"]).headings) == [
        "model", "eraser", "accuracy (%)", "seeds",
    ]  # fmt: skip


def test_loss_curves_have_the_axis_of_epochs(
    results: list[TrainResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _, **__: drawn.append(figure))
    (shown,) = arrange(stored(results))
    draw_loss_curves(panels_of(shown), colours_of([shown]), tmp_path / "loss_curves.png")
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
