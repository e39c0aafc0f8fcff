import math

import pytest
import torch

from sample_info.linearized import resolvent
from sample_info.linearized.resolvent import ContourRule, Resolvent, spectral_bound
from sample_info.linearized.series import ChebyshevSeries, MaskedSeries
from sample_info.linearized.training import LinearizedDescent
from tests.sample_info.networks import some_kernels

POINTS = torch.cat([torch.zeros(1), torch.logspace(-9, 0, 500)]).double() * 854.0


@pytest.mark.parametrize("time", ["discrete", "continuous"])
@pytest.mark.parametrize("steps", [1, 30, 2000, 100_000])
@pytest.mark.parametrize("low", [0.0, 3.0])
def test_the_filter_is_a_sum_of_resolvents(time, steps, low) -> None:
    descent = LinearizedDescent(learning_rate=0.001, steps=steps, time=time)
    rule = ContourRule.fit(lambda s: descent.filter(s, 1), low, low + 854.0, 1e-14)
    values = descent.filter(low + POINTS, 1)
    error = float((rule(low + POINTS) - values).abs().max() / values.max())
    assert error < 1e-12
    assert error <= 3 * rule.error / float(values.max()) + 1e-14
    assert len(rule.nodes) <= 32 * steps**0.5 + 32  # as many as the Chebyshev degree's order


def test_what_is_not_analytic_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(resolvent, "_MOST_NODES", 128)
    with pytest.raises(ValueError, match="no rule"):
        ContourRule.fit(lambda s: (s - math.pi).abs().to(s.dtype), 0.5, 40.0, 1e-14)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_the_tolerance_is_relative(scale: float) -> None:
    descent = LinearizedDescent(learning_rate=0.001, steps=30, time="discrete")
    rules = [ContourRule.fit(lambda s, c=c: c * descent.filter(s, 1), 0.0, 854.0, 1e-6) for c in (1.0, scale)]
    assert len(rules[0].nodes) == len(rules[1].nodes)
    assert rules[1].error == pytest.approx(scale * rules[0].error, rel=1e-3)


@pytest.mark.parametrize("k", [1, 3])
def test_elimination_at_every_node_is_the_masked_series_for_sets_too(k: int) -> None:
    kernel, _, residual = some_kernels(20, k)
    descent, sets = LinearizedDescent(learning_rate=0.05, steps=500), torch.tensor([[0, 3, 7], [11, 2, 19]])
    high = spectral_bound(kernel)
    series = ChebyshevSeries.fit(lambda s: descent.filter(s, 20), 0.0, high, 1e-14)
    rule = ContourRule.fit(lambda s: descent.filter(s, 20), 0.0, high, 1e-14)
    ours = Resolvent(kernel, residual, 0.0, rule).differences(sets)
    torch.testing.assert_close(ours, MaskedSeries(kernel, residual, series).differences(sets), rtol=1e-8, atol=1e-10)
