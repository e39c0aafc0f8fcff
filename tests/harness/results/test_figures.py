"""Figures of runs: remarks on plateaus and single seeds, and curves without a kink."""

from dataclasses import replace
from pathlib import Path
from statistics import mean

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from harness.result import MdlResult, TrainResult
from harness.results.arrange import arrange, colours_of, finished, panels
from harness.results.figures import _epoch_axis, draw_learning_curves, draw_loss_curves, draw_scaling, scaling_panels
from harness.results.read import read_runs
from tests.harness.results.test_columns import compared, results
from tests.made_up_runs import edit_result, result_json, write_run, write_small_run


def comparison(root: Path) -> pd.DataFrame:
    """Control and QLEACE, whose second seed never left the plateau."""
    results = []
    for eraser, left in (("control", [True, True]), ("qleace", [True, False])):
        result = write_run(root, "train", dataset="digits", eraser=eraser, seeds=(0, 1)).result
        assert isinstance(result, TrainResult)
        results.append(replace(result, left_plateau=left))
    (only,) = arrange(results)
    return only


def test_loss_curves_have_the_axis_of_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _, **__: drawn.append(figure))
    shown = comparison(tmp_path)
    draw_loss_curves(panels(shown), colours_of([shown]), tmp_path / "loss_curves.png")
    ax = drawn[0].axes[0]
    assert ax.get_title() == "MLP"
    assert ax.get_xlim() == (0, 49)
    assert ax.get_xticks().tolist() == [0, 1, 2, 5, 10, 20]  # of `_epoch_axis`


def test_points_that_rest_on_plateaus_are_hollow(tmp_path, monkeypatch) -> None:
    for eraser in ("control", "qleace"):
        for width in (64, 128):
            run = write_small_run(tmp_path, eraser, options={"width": width})
    stuck = result_json(run)["curve"]
    stuck[0]["left_plateau"] = [True, False]
    edit_result(run, curve=stuck)
    (block,) = arrange(read_runs([tmp_path]))
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _, **__: drawn.append(figure))
    draw_scaling("width", scaling_panels(finished(block), "width"), colours_of([block]), tmp_path / "scaling.svg")
    assert [ax.get_ylabel().splitlines()[0] for ax in drawn[0].axes] == [
        "codelength ± std", "increase over control ± s.e.",
    ]  # fmt: skip
    for ax in drawn[0].axes:
        hollow = [line.get_xdata() for line in ax.get_lines() if line.get_markerfacecolor() == "white"]
        assert np.concatenate(hollow).tolist() == [128]


def test_panels_over_a_size_are_of_models_that_have_it(tmp_path: Path) -> None:
    for width in (64, 128):
        write_small_run(tmp_path, "control", options={"width": width, "depth": 0})
    (block,) = arrange(read_runs([tmp_path]))
    for option in ("activation", "depth", "channels"):  # no number, not positive, none
        assert scaling_panels(finished(block), option) == []


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


def draw(shown: pd.DataFrame, path: Path) -> None:
    draw_learning_curves(panels(shown), colours_of([shown]), path)


def test_learning_curves_have_a_panel_per_model_and_one_of_costs(tmp_path: Path, monkeypatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _, **__: drawn.append(figure))
    draw(compared(results(tmp_path)), tmp_path / "comparison.png")
    assert drawn[0].axes[0].get_title() == "MLP"
    assert drawn[0].axes[1].get_title() == "cost of erasure ± standard error, 2 seeds"


@pytest.mark.parametrize(("seeds", "said"), [((0, 1), " ± "), ((0,), ", one seed")])
def test_a_difference_of_one_seed_has_no_error(seeds: tuple[int, ...], said: str, tmp_path: Path, monkeypatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _, **__: drawn.append(figure))
    draw(compared(results(tmp_path, seeds)), tmp_path / "comparison.png")
    assert [said in text.get_text() for text in drawn[0].axes[1].texts] == [True]


@pytest.mark.parametrize("seeds", [(1,), (1, 2), (2, 1, 0)])
def test_differences_are_of_the_seeds_that_both_have(seeds: tuple[int, ...], tmp_path: Path, monkeypatch) -> None:
    both: list[MdlResult] = []
    for eraser, of in (("control", (0, 1)), ("qleace", seeds)):
        run = write_run(tmp_path, dataset="digits", eraser=eraser, seeds=of).result
        assert isinstance(run, MdlResult)
        both.append(run)
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _, **__: drawn.append(figure))
    draw(arrange(read_runs([tmp_path]))[0], tmp_path / "comparison.png")
    (bar,) = drawn[0].axes[1].texts
    control, erased = (dict(zip(one.seeds, one.mdl.bits_per_sample, strict=True)) for one in both)
    common = [seed for seed in seeds if seed in control]
    expected = mean(erased[seed] - control[seed] for seed in common)
    assert bar.get_text().startswith(f"{expected:+.3f}")
    assert ("one seed" in bar.get_text()) == (len(common) == 1)
