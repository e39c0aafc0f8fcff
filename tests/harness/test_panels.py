"""What figures average."""

import numpy as np

from harness.loss_curves import LossCurve
from harness.panels import mean_curve, panel_grid


def curve(*bits: float) -> LossCurve:
    losses = np.array(bits)
    return LossCurve(np.arange(len(bits), dtype=float), np.array([np.nan, *losses[1:] / 2]), losses)


def test_curves_are_averaged_as_long_as_all_seeds_train() -> None:
    curves = [curve(3.0, 2.0, 1.0), curve(3.0, 4.0)]
    epochs, middle, std = mean_curve(curves)
    assert (epochs.tolist(), middle.tolist()) == ([0.0, 1.0], [3.0, 3.0])
    assert std.tolist() == [0.0, 2**0.5]
    epochs, middle, _ = mean_curve(curves, "train_bits")  # of which epoch 0 has none
    assert (epochs.tolist(), middle.tolist()) == ([1.0], [1.5])
    assert [len(each) for each in mean_curve([])] == [0, 0, 0]


def test_panels_stand_three_in_a_row() -> None:
    figure, axes = panel_grid(4)
    assert len(axes) == 4
    assert figure.get_size_inches().tolist() == [3 * 4.7, 2 * 3.7 + 0.4]
