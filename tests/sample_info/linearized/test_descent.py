"""Gradient descent as a filter: what stepping gives, its limit, and where it diverges."""

import math

import pytest
import torch

from sample_info.linearized.descent import LinearizedDescent

EIGENVALUES = torch.tensor([0.0, 1e-12, 1e-3, 1.0, 50.0, 150.0], dtype=torch.float64)


@pytest.mark.parametrize("time", ["discrete", "continuous"])
@pytest.mark.parametrize("steps", [1, 7, 2000])
def test_the_filter_is_what_stepping_gives(time, steps) -> None:
    """a ← a - η/n (s a + r) from 0, for r = -1; the flow by many tiny steps of it."""
    descent = LinearizedDescent(learning_rate=0.1, steps=steps, time=time)
    n, splits = 10, 1 if time == "discrete" else 4000 // steps + 1
    a = torch.zeros_like(EIGENVALUES)
    for _ in range(steps * splits):
        a = a - 0.1 / n / splits * (EIGENVALUES * a - 1)
    expected = a
    tolerance = 1e-12 if time == "discrete" else 3e-3
    torch.testing.assert_close(descent.filter(EIGENVALUES, n), expected, rtol=tolerance, atol=0)


def test_more_steps_approach_the_limit() -> None:
    positive = EIGENVALUES[2:]
    limit = LinearizedDescent(learning_rate=0.1, steps=math.inf).filter(positive, 10)
    torch.testing.assert_close(limit, 1 / positive)
    for time in ("discrete", "continuous"):
        long = LinearizedDescent(learning_rate=0.1, steps=10**7, time=time).filter(positive, 10)
        torch.testing.assert_close(long, limit)


def test_divergence_is_refused_and_the_largest_rate_named() -> None:
    descent = LinearizedDescent(learning_rate=0.1, steps=10, weight_decay=1.0)
    descent.require_stable(198.0, 10)
    with pytest.raises(ValueError, match=r"diverges on this kernel from 0\.1 on"):
        descent.require_stable(199.0, 10)
    LinearizedDescent(learning_rate=0.1, steps=10, time="continuous").require_stable(1e9, 10)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"learning_rate": 0.0}, "learning_rate=0.0"),
        ({"learning_rate": math.nan}, "learning_rate=nan"),
        ({"steps": 0}, "steps=0"),
        ({"steps": 2.5}, "whole steps"),
        ({"weight_decay": -1.0}, "weight_decay=-1.0"),
    ],
)
def test_values_out_of_range_are_refused(options, said) -> None:
    with pytest.raises(ValueError, match=said):
        LinearizedDescent(**{"learning_rate": 0.1, "steps": 10, **options})
