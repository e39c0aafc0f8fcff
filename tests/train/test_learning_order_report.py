"""Steps at which an order is learnt, by hand."""

import pytest

from train.learning_order_report import ahead_of_means_step, beyond_step, learnt_step, past_means_step, unlearnt_step


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


def test_what_covariances_add_is_timed_from_the_best_that_means_reach() -> None:
    """Planted: means explain a loss from 3 to 1 within 3 steps, covariances a further 0.8 bits within 15."""
    steps, of_means, losses = [0, 1, 3, 7, 15, 31], [3.0, 3.0, 1.0, 1.2, 2.0, 2.5], [3.0, 3.0, 1.0, 0.8, 0.2, 0.4]
    assert past_means_step(steps, losses, of_means) == pytest.approx(2 ** (3 + 1 / 3) - 1)  # at 0.6 bits
    assert ahead_of_means_step(steps, losses, of_means) == pytest.approx(2**2.5 - 1)  # at 0.9 bits
    assert learnt_step(steps, losses) == pytest.approx(2**1.7 - 1)  # most of the whole fall is that of means
    chance = [3.0] * 6  # nothing is learnt of means: the whole fall counts
    assert past_means_step(steps, losses, chance) == pytest.approx(learnt_step(steps, losses))


def test_a_network_that_uses_means_alone_is_never_past_them() -> None:
    steps, of_means = [0, 1, 3, 7], [3.0, 2.0, 1.0, 1.5]
    for losses in (of_means, [loss - 0.09 for loss in of_means], [3.0, 2.0, 1.2, 1.1]):
        assert past_means_step(steps, losses, of_means) is None
        assert ahead_of_means_step(steps, losses, of_means) is None
    assert past_means_step(steps, [3.0, 2.0, 1.0, 0.9], of_means) == pytest.approx(2**2.5 - 1)
