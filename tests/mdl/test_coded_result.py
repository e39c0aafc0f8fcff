"""The result of a learning curve, computed by hand."""

import pytest

from mdl.coded_result import result_of_curve
from mdl.result import Point


def test_a_curve_of_two_seeds_by_hand() -> None:
    points = [
        Point(n=2, epochs=[1, 1], ce_next_bits=[3.0, 2.0], ce_test_bits=[4.0, 2.5]),
        Point(n=4, epochs=[1, 1], ce_next_bits=[1.0, 1.5], ce_test_bits=[2.0, 1.0]),
        Point(n=8, epochs=[1, 1], ce_next_bits=None, ce_test_bits=[0.5, 0.7], test_accuracy=[0.8, 0.9]),
    ]
    result = result_of_curve(points, [2, 4, 8], [12.0, 16.0])
    assert result.mdl.bits_per_sample == [1.5, 2.0]
    assert result.mdl.published == pytest.approx([(4 * 4.0 + 8 * 2.0) / 8, (4 * 2.5 + 8 * 1.0) / 8])
    assert (result.final.loss_bits, result.final.accuracy) == ([0.5, 0.7], [0.8, 0.9])
    assert result.power_law == [None, None]  # of two points none
