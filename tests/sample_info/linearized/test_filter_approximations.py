"""Chebyshev series and rules on a contour: as accurate as asked, and as short as they can be."""

import math

import pytest
import torch
from numpy.polynomial.chebyshev import chebval
from torch import Tensor

from sample_info.linearized.descent import LinearizedDescent
from sample_info.linearized.filter_approximations import ChebyshevSeries, ContourRule

INTERVAL = torch.linspace(0.5, 40.0, 1001, dtype=torch.float64)
POINTS = torch.cat([torch.zeros(1), torch.logspace(-9, 0, 500)]).double() * 854.0


def at_points(series: ChebyshevSeries) -> Tensor:
    x = (2 * INTERVAL - series.low - series.high) / (series.high - series.low)
    return torch.from_numpy(chebval(x.numpy(), series.coefficients.numpy()))


@pytest.mark.parametrize("steps", [1, 30, 5000])
@pytest.mark.parametrize("tolerance", [1e-4, 1e-9, 1e-13])
def test_the_error_is_below_its_bound_and_the_bound_below_what_was_asked(steps, tolerance) -> None:
    descent = LinearizedDescent(learning_rate=0.2, steps=steps)
    series = ChebyshevSeries.fit(lambda s: descent.filter(s, 10), 0.5, 40.0, tolerance)
    values = descent.filter(INTERVAL, 10)
    error = float((at_points(series) - values).abs().max() / values.max())
    assert series.truncation <= tolerance * float(values.max())
    assert error <= series.truncation / float(values.max()) + 1e-14
    assert error > 1e-3 * tolerance or tolerance < 1e-12 or series.degree < 30  # no longer than need be


def test_a_series_of_thousands_of_terms_is_as_accurate() -> None:
    descent = LinearizedDescent(learning_rate=0.001, steps=10**6)
    series = ChebyshevSeries.fit(lambda s: descent.filter(s, 1), 0.0, 854.0, 1e-12)
    assert 2000 < series.degree < 20_000
    assert series.truncation <= 1e-12 * 1000  # the filter is largest at 0: learning rate times steps


def test_a_polynomial_is_found_exactly() -> None:
    series = ChebyshevSeries.fit(lambda s: 1 - s + 2 * s**3, 0.5, 40.0, 1e-14)
    assert series.degree == 3
    torch.testing.assert_close(at_points(series), 1 - INTERVAL + 2 * INTERVAL**3, rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("steps", [1, 30, 2000, 100_000])
@pytest.mark.parametrize("low", [0.0, 3.0])
def test_the_filter_is_a_sum_of_resolvents(steps: int, low: float) -> None:
    descent = LinearizedDescent(learning_rate=0.001, steps=steps)
    rule = ContourRule.fit(lambda s: descent.filter(s, 1), low, low + 854.0, 1e-14)
    values = descent.filter(low + POINTS, 1)
    error = float((rule(low + POINTS) - values).abs().max() / values.max())
    assert error < 1e-12
    assert error <= 3 * rule.error / float(values.max()) + 1e-14
    assert len(rule.nodes) <= 32 * steps**0.5 + 32  # as many as the Chebyshev degree's order


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_the_tolerance_is_relative(scale: float) -> None:
    descent = LinearizedDescent(learning_rate=0.001, steps=30)
    rules = [ContourRule.fit(lambda s, c=c: c * descent.filter(s, 1), 0.0, 854.0, 1e-6) for c in (1.0, scale)]
    assert len(rules[0].nodes) == len(rules[1].nodes)
    assert rules[1].error == pytest.approx(scale * rules[0].error, rel=1e-3)


def test_what_is_not_smooth_is_refused() -> None:
    with pytest.raises(ValueError, match="no Chebyshev series"):
        ChebyshevSeries.fit(lambda s: (s - math.pi).abs(), 0.5, 40.0, 1e-14)
    with pytest.raises(ValueError, match="no rule"):
        ContourRule.fit(lambda s: (s - math.pi).abs().to(s.dtype), 0.5, 40.0, 1e-14, most_nodes=128)
