"""Averages in figures."""

import numpy as np
from matplotlib.figure import Figure

from harness.loss_curves import LossCurve
from harness.results.panels import mean_curve, panel_size, panels


def curve(*bits: float) -> LossCurve:
    losses = np.array(bits)
    return LossCurve(np.arange(len(bits), dtype=float), np.array([np.nan, *losses[1:] / 2]), losses)


def test_curves_are_averaged_as_long_as_all_seeds_train() -> None:
    curves = [curve(3.0, 2.0, 1.0), curve(3.0, 4.0)]
    epochs, middle = mean_curve(curves)
    assert (epochs.tolist(), middle.tolist()) == ([0.0, 1.0], [3.0, 3.0])
    epochs, middle = mean_curve(curves, "train_bits")  # of which epoch 0 has none
    assert (epochs.tolist(), middle.tolist()) == ([1.0], [1.5])
    assert [len(each) for each in mean_curve([])] == [0, 0]


def test_panels_stand_three_in_a_row() -> None:
    figure = Figure(figsize=panel_size(4))
    places = [ax.get_subplotspec() for ax in panels(figure, 4)]
    assert [place and place.get_geometry()[:3] for place in places] == [(2, 3, i) for i in range(4)]
    assert panel_size(4) == (3 * 4.7, 2 * 3.7 + 0.4)
    assert panel_size(1) == (6.0, 3.7 + 0.4)
