"""Loss curves: rows, plateau, sharpest fall, crossing of an erased run below its control."""

import random

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
from harness.result_fields import SharpDrops
from harness.run_directory import Run


def curve(*bits: float, every: int = 1) -> LossCurve:
    epochs = np.arange(len(bits)) * every
    return LossCurve(epochs.astype(float), np.full(len(bits), np.nan), np.array(bits))


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
    rows = [CurveRow(9, seed, epoch, None, bits) for epoch, bits in enumerate([1.0, 1.5, 2.0]) for seed in (4, 3)]
    assert sharp_drops([*rows, CurveRow(9, 7, 0, None, 3.0), CurveRow(9, 7, 1, 2.0, 1.0)]) == SharpDrops(
        window_epochs=5, bits=[0.0, 0.0, 2.0], epoch=[None, None, 0]
    )


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


@pytest.mark.parametrize(("bits", "epochs"), [(0.98, 1), (0.99, None)])
def test_the_plateau_ends_where_the_training_loss_is_below_99_percent_of_the_label_entropy(bits, epochs) -> None:
    recorded = MemberCurve(0, 1.0, epoch=[0, 1, 2], train_loss_bits=[None, 1.0, bits], validation_loss_bits=[1.0] * 3)
    assert recorded.plateau_epochs == epochs


def test_rows_of_a_members_curve() -> None:
    recorded = MemberCurve(0, 1.0, epoch=[0, 1], train_loss_bits=[None, 1.0], validation_loss_bits=[3.0, 2.0])
    assert recorded.rows(50) == [(50, 0, 0, None, 3.0), (50, 0, 1, 1.0, 2.0)]
