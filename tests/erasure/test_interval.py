"""Ranges that values are kept in by a sigmoid."""

import torch
from torch import Tensor

from erasure.interval import Interval

LOW, HIGH = torch.tensor([0.0, -2.0, 5.0], dtype=torch.float64), torch.tensor([1.0, 2.0, 5.5], dtype=torch.float64)
INTERVAL = Interval(LOW, HIGH)
INSIDE = LOW + torch.rand(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * (HIGH - LOW)


def values(u: Tensor) -> Tensor:
    return INTERVAL.values(u)[0]


def test_free_numbers_give_back_values_and_none_leaves_the_range() -> None:
    kept = INSIDE.clamp(LOW + 2e-3 * (HIGH - LOW), HIGH - 2e-3 * (HIGH - LOW))  # not at the very ends
    torch.testing.assert_close(values(INTERVAL.free(kept)), kept)
    far = torch.tensor([[-1e3], [1e3]], dtype=torch.float64).expand(2, 3)
    assert values(far).equal(torch.stack([LOW, HIGH]))
    assert INTERVAL.free(torch.stack([LOW, HIGH])).isfinite().all()


def test_gradients_are_pulled_back_as_autograd_does() -> None:
    u = INTERVAL.free(INSIDE).requires_grad_()
    weights = torch.arange(1.0, 61.0, dtype=torch.float64).view(20, 3)
    (expected,) = torch.autograd.grad((weights * values(u)).sum(), u)
    torch.testing.assert_close(INTERVAL.pull_back(weights.clone(), INTERVAL.values(u.detach())[1]), expected)


def test_what_is_outside_by_more_than_rounding_is_told() -> None:
    assert INTERVAL.contains(INSIDE)
    assert INTERVAL.contains(HIGH[None] * (1 + 2e-16))
    assert INTERVAL.contains(INSIDE[:0])
    for outside in (LOW - 1e-6, HIGH + 1e-6):
        assert not INTERVAL.contains(torch.cat([INSIDE, outside[None]]))


def test_it_moves_with_rescaled_values() -> None:
    scale, shift = torch.tensor([2.0, 0.5, 3.0]), torch.tensor([1.0, 0.0, -1.0])
    moved = INTERVAL.rescaled(scale.double(), shift.double())
    torch.testing.assert_close(moved.low, LOW * scale + shift)
    torch.testing.assert_close(moved.high, HIGH * scale + shift)
