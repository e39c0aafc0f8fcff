"""Gradient descent as a filter: what stepping gives, its limit, and where it diverges."""

import pytest
import torch

from sample_info.linearized.descent import LinearizedDescent

EIGENVALUES = torch.tensor([0.0, 1e-12, 1e-3, 1.0, 50.0, 150.0], dtype=torch.float64)


@pytest.mark.parametrize("steps", [1, 7, 2000])
def test_the_filter_is_what_stepping_gives(steps: int) -> None:
    """a ← a - η/n (s a + r) from 0, for r = -1."""
    descent, a = LinearizedDescent(learning_rate=0.1, steps=steps), torch.zeros_like(EIGENVALUES)
    for _ in range(steps):
        a = a - 0.1 / 10 * (EIGENVALUES * a - 1)
    torch.testing.assert_close(descent.filter(EIGENVALUES, 10), a, rtol=1e-12, atol=0)


def test_more_steps_approach_the_limit() -> None:
    positive = EIGENVALUES[2:]
    limit = LinearizedDescent(learning_rate=0.1, steps="converged").filter(positive, 10)
    torch.testing.assert_close(limit, 1 / positive)
    long = LinearizedDescent(learning_rate=0.1, steps=10**7).filter(positive, 10)
    torch.testing.assert_close(long, limit)


def test_divergence_is_refused_and_the_largest_rate_named() -> None:
    descent = LinearizedDescent(learning_rate=0.1, steps=10, weight_decay=1.0)
    descent.require_stable(198.0, 10)
    with pytest.raises(ValueError, match=r"diverges on this kernel from 0\.1 on"):
        descent.require_stable(199.0, 10)
