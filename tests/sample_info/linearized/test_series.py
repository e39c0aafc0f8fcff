import math

import pytest
import torch
from numpy.polynomial.chebyshev import chebval
from torch import Tensor

from sample_info.linearized.series import ChebyshevSeries
from sample_info.linearized.training import LinearizedDescent

POINTS = torch.linspace(0.5, 40.0, 1001, dtype=torch.float64)


def at_points(series: ChebyshevSeries) -> Tensor:
    x = (2 * POINTS - series.low - series.high) / (series.high - series.low)
    return torch.from_numpy(chebval(x.numpy(), series.coefficients.numpy()))


@pytest.mark.parametrize("steps", [1, 30, 5000])
@pytest.mark.parametrize("tolerance", [1e-4, 1e-9, 1e-13])
def test_the_error_is_below_its_bound_and_the_bound_below_what_was_asked(steps, tolerance) -> None:
    descent = LinearizedDescent(learning_rate=0.2, steps=steps)
    series = ChebyshevSeries.fit(lambda s: descent.filter(s, 10), 0.5, 40.0, tolerance)
    values = descent.filter(POINTS, 10)
    error = float((at_points(series) - values).abs().max() / values.max())
    assert series.truncation <= tolerance * float(values.max())
    assert error <= series.truncation / float(values.max()) + 1e-14
    assert error > 1e-3 * tolerance or tolerance < 1e-12 or series.degree < 30  # no longer than need be


def test_a_polynomial_is_found_exactly() -> None:
    series = ChebyshevSeries.fit(lambda s: 1 - s + 2 * s**3, 0.5, 40.0, 1e-14)
    assert series.degree == 3
    torch.testing.assert_close(at_points(series), 1 - POINTS + 2 * POINTS**3, rtol=1e-11, atol=1e-9)


def test_what_is_not_smooth_is_refused() -> None:
    with pytest.raises(ValueError, match="no Chebyshev series"):
        ChebyshevSeries.fit(lambda s: (s - math.pi).abs(), 0.5, 40.0, 1e-14)
