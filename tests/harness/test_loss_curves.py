"""Loss curves: rows, plateau, crossing of an erased run below its control, by how much, and how suddenly."""

import csv
import random
from dataclasses import replace

import numpy as np
import pytest

from harness.loss_curves import (
    CurveRow,
    LossCurve,
    MemberCurve,
    crossing,
    crossing_epoch,
    read_loss_curves,
    sharp_drop,
    sharp_drops,
)
from harness.result import MdlResult
from harness.result_fields import SharpDrops
from harness.results.arrange import Entry, arrange
from harness.results.statistics import Difference
from harness.run_directory import Run
from tests.made_up_runs import made_up


def curve(*bits: float, every: int = 1) -> LossCurve:
    epochs = np.arange(len(bits)) * every
    return LossCurve(epochs.astype(float), np.full(len(bits), np.nan), np.array(bits))


def result(finals, test_bits=None, seeds=(0, 1, 2)) -> MdlResult:
    bits = list(finals)
    test_bits = test_bits or {100: finals}
    points = [
        {"n": n, "ce_next_bits": at if n < max(test_bits) else None, "ce_test_bits": at, "epochs": [5 for _ in at]}
        for n, at in test_bits.items()
    ]
    code = dict.fromkeys(("bits_per_sample", "total_bits", "published"), bits)
    config = {**made_up().config, "runs_dir": "nowhere"}
    mdl_result = made_up(command="mdl", config=config, seeds=list(seeds), mdl=code, curve=points,
                    train_size=max(test_bits), power_law=[None for _ in seeds],
                    final={"loss_bits": bits, "accuracy": bits})  # fmt: skip
    assert isinstance(mdl_result, MdlResult)
    return mdl_result


def slow_sharp_drop(epochs, bits, window):
    """Every pair of evaluations; the earliest of the largest falls."""
    best = (0.0, None)
    for i in range(len(bits)):
        for j in range(i + 1, len(bits)):
            if (epochs[j] - epochs[i] <= window or j == i + 1) and bits[i] - bits[j] > best[0]:
                best = (bits[i] - bits[j], epochs[i])
    return best


def test_the_sharp_drop_is_the_largest_fall_within_the_window() -> None:
    plateau_then_fall = [3.3] * 20 + [2.8, 2.0, 1.4] + [1.4] * 10
    drop = sharp_drop(range(33), plateau_then_fall)
    assert drop == (pytest.approx(1.9), 19)
    draw = random.Random(0)
    for window in (1, 3, 7):
        epochs = sorted(draw.sample(range(60), 30))
        bits = [draw.random() for _ in epochs]
        drop = sharp_drop(epochs, bits, window)
        assert drop == pytest.approx(slow_sharp_drop(epochs, bits, window))


def test_a_loss_that_never_falls_has_no_drop() -> None:
    assert sharp_drops([([0, 1, 2], [1.0, 1.5, 2.0]), ([0], [1.0])]).epoch == [None, None]
    assert sharp_drops([([0, 1], [3.0, 1.0])]) == SharpDrops(window_epochs=5, bits=[2.0], epoch=[0])


def test_evaluations_further_apart_than_the_window_still_count() -> None:
    assert sharp_drop([0, 50, 100], [3.0, 2.9, 1.0], window=5)[1] == 50


def test_crossing_is_where_the_curve_stays_below() -> None:
    control = np.array([3.0, 2.0, 1.0, 1.0])
    assert crossing([1, 2, 4, 8], np.array([2.0, 3.0, 0.9, 0.5]), control) == 4  # below at 1, too, but not to stay
    assert crossing([1, 2, 4, 8], control - 0.1, control) == 1
    assert crossing([1, 2, 4, 8], control, control) is None
    assert crossing([1, 2, 4, 8], np.array([0.0, 0.0, 0.0, 1.1]), control) is None


def test_a_stopped_seed_keeps_its_best_loss() -> None:
    """The control stops at epoch 3 with 1.0 as its best; the erased run passes that at epoch 5."""
    control = [curve(3.3, 2.0, 1.0, 1.6)]
    erased = [curve(3.3, 3.3, 3.2, 3.0, 2.0, 0.8, 0.9)]
    assert crossing_epoch(erased, control) == 5
    assert crossing_epoch(control, erased) is None
    assert crossing_epoch([curve(3.0, 0.5, every=4)], control) == 4


def test_a_control_that_overfits_is_not_crossed() -> None:
    assert crossing_epoch([curve(3.3, 2.0, 1.5, 1.2)], [curve(3.3, 1.0, 2.0, 3.0)]) is None


def against(erased: MdlResult, control: MdlResult) -> tuple[Difference, Entry]:
    _, entry = arrange([control, replace(erased, config={**erased.config, "eraser": {"name": "leace"}})])[0].entries
    return entry["test_loss_bits_difference"], entry


def test_backfire_is_significant_and_paired() -> None:
    control = result([1.0, 2.0, 3.0], {10: [3.0] * 3, 100: [2.0] * 3})
    below_gap, below = against(result([0.8, 1.7, 2.8], {10: [3.1] * 3, 100: [1.8] * 3}), control)
    assert below_gap.below
    assert below["crossing_size"] == 100
    assert below_gap.mean == pytest.approx(-0.7 / 3)
    assert below_gap.standard_error == pytest.approx(np.std([-0.2, -0.3, -0.2], ddof=1) / 3**0.5)
    above_gap, above = against(result([1.2, 2.3, 3.2], {10: [3.1] * 3, 100: [2.2] * 3}), control)
    assert not above_gap.below
    assert above["crossing_size"] is None
    unclear_gap, unclear = against(result([0.0, 2.5, 3.0], {10: [3.1] * 3, 100: [1.9] * 3}), control)
    assert not unclear_gap.below  # below on average, but not significantly
    assert unclear["crossing_size"] == 100
    assert unclear["crossing_epoch"] is None


def test_only_what_belongs_together_is_compared() -> None:
    shared, _ = against(result([1.0, 2.0, 9.0]), result([2.0, 9.0, 4.0], seeds=(0, 3, 1)))
    assert shared.mean == pytest.approx((1.0 - 2.0 + 2.0 - 4.0) / 2)  # of seeds 0 and 1
    _, alike = against(result([1.0] * 3), result([1.0] * 3))
    assert alike["crossing_size"] is None  # one training on everything has no sizes


def test_loss_curves_are_read_back(tmp_path) -> None:
    run = Run(tmp_path, "run")
    rows = [CurveRow(n, seed, epoch, None if epoch == 0 else 2.0, n + seed + epoch) for n in (27, 127)
            for seed in (3, 5) for epoch in range(4)]  # fmt: skip
    run.save_curves(rows)
    curves = read_loss_curves(run.directory / "curves.csv")
    assert list(curves) == [3, 5]
    assert curves[5].validation_bits.tolist() == [132, 133, 134, 135]
    assert np.isnan(curves[5].train_bits[0])
    for text in ("", "n,seed,epoch,train_loss_bits,validation_loss_bits\n", "n,seed\n1,x\n", "1,2,3,4\n", "1,0,0,,\n"):
        (tmp_path / "bad.csv").write_text(text)
        with pytest.raises(ValueError, match=r"bad\.csv is not a table of losses"):
            read_loss_curves(tmp_path / "bad.csv")


def test_the_analysis_is_in_results_and_tables(command, tmp_path) -> None:
    """A small sweep of both commands: result.json, the terminal's table, table.csv."""
    from conf.sweep_directory import process
    from erasure.store.checked_files import read_json
    from mdl.__main__ import COMMAND as MDL
    from train.__main__ import COMMAND as TRAIN

    quick = ["-m", "eraser=control,leace", "model=linear", "train=quick", "train.max_epochs=4", "seeds=[0,1]"]
    for chosen, extra in ((MDL, ["mdl=quick"]), (TRAIN, [])):
        outcome = command(chosen, *quick, *extra, "logger.mode=disabled")
        assert outcome.code == 0, outcome.err
        assert "test loss (bits)" in outcome.out
    for path in (tmp_path / "runs").glob("*/result.json"):
        drop = read_json(path)["sharp_drop"]
        assert drop["window_epochs"] == 5
        assert len(drop["bits"]) == len(drop["epoch"]) == 2
    command(MDL, *quick, "mdl=quick", "logger.mode=disabled")
    with (process.sweep.directory / "table.csv").open() as file:
        control, leace = csv.DictReader(file)
    assert control["test_loss_bits_difference"] == ""
    assert float(leace["test_loss_bits_difference"]) > 0
    assert 0 < float(leace["test_loss_bits_error_over_examples"]) < float(leace["test_loss_bits_difference"])
    assert 0 <= float(leace["test_loss_bits_p_holm"]) <= 1
    assert (leace["test_loss_bits_backfires"], leace["crossing_size"], leace["crossing_epoch"]) == ("False", "", "")
    assert float(control["sharp_drop_bits"]) > 0


@pytest.mark.parametrize(("bits", "epochs"), [(0.98, 1), (0.99, None)])
def test_the_plateau_ends_where_the_training_loss_is_below_99_percent_of_the_label_entropy(bits, epochs) -> None:
    recorded = MemberCurve(0, 1.0, epoch=[0, 1, 2], train_loss_bits=[None, 1.0, bits], validation_loss_bits=[1.0] * 3)
    assert recorded.plateau_epochs == epochs


def test_rows_of_a_members_curve() -> None:
    recorded = MemberCurve(0, 1.0, epoch=[0, 1], train_loss_bits=[None, 1.0], validation_loss_bits=[3.0, 2.0])
    assert recorded.rows(50) == [(50, 0, 0, None, 3.0), (50, 0, 1, 1.0, 2.0)]
