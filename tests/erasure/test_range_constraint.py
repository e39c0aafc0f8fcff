"""Ranges that values are kept in by a sigmoid."""

import torch
from torch import Tensor

from erasure import range_constraint
from erasure.range_constraint import contains, free, pull_back

LOW, HIGH = ENDS = torch.tensor([[0.0, -2.0, 5.0], [1.0, 2.0, 5.5]], dtype=torch.float64)
INSIDE = LOW + torch.rand(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * (HIGH - LOW)


def values(u: Tensor) -> Tensor:
    return range_constraint.values(ENDS, u)[0]


def test_free_numbers_give_back_values_and_none_leaves_the_range() -> None:
    inside = INSIDE.clamp(LOW + 2e-3 * (HIGH - LOW), HIGH - 2e-3 * (HIGH - LOW))  # not at the very ends
    torch.testing.assert_close(values(free(ENDS, inside)), inside)
    far = torch.tensor([[-1e3], [1e3]], dtype=torch.float64).expand(2, 3)
    assert values(far).equal(ENDS)
    assert free(ENDS, ENDS).isfinite().all()


def test_gradients_are_pulled_back_as_autograd_does() -> None:
    u = free(ENDS, INSIDE).requires_grad_()
    weights = torch.arange(1.0, 61.0, dtype=torch.float64).view(20, 3)
    (expected,) = torch.autograd.grad((weights * values(u)).sum(), u)
    torch.testing.assert_close(pull_back(ENDS, weights.clone(), range_constraint.values(ENDS, u.detach())[1]), expected)


def test_what_is_outside_by_more_than_rounding_is_told() -> None:
    assert contains(ENDS, INSIDE)
    assert contains(ENDS, HIGH[None] * (1 + 2e-16))
    assert contains(ENDS, INSIDE[:0])
    for outside in (LOW - 1e-6, HIGH + 1e-6):
        assert not contains(ENDS, torch.cat([INSIDE, outside[None]]))
