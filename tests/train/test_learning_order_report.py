"""Steps at which an order is learnt, by hand."""

import pytest

from train.learning_order_report import beyond_step, learnt_step, unlearnt_step


def test_steps_of_a_curve_by_hand() -> None:
    steps, losses = [0, 1, 3, 7, 15], [3.0, 3.0, 2.0, 1.0, 1.5]
    assert learnt_step(steps, losses) == pytest.approx(3.0)  # half of the fall of 2
    assert learnt_step(steps, [3.0, 3.0, 3.0, 1.0, 1.0]) == pytest.approx(
        2**2.5 - 1
    )  # between 3 and 7, in log(step + 1)
    assert learnt_step(steps, [3.0, 3.0, 2.99, 2.98, 3.2]) is None
    assert unlearnt_step(steps, losses) == 7
    assert unlearnt_step(steps, [3.0, 2.0, 1.0, 0.9, 0.92]) is None
    assert beyond_step(steps, losses, [3.0, 2.5, 2.0, 0.5, 0.4]) == 7  # at step 1 the images were ahead, but not at 3
    assert beyond_step(steps, losses, losses) is None
    assert beyond_step(steps, [4.0] * 5, losses) == 0
