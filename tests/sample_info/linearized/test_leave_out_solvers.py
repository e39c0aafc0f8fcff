import pytest
import torch

from erasure import on_progress
from sample_info.linearized.descent import LinearizedDescent
from sample_info.linearized.filter_approximations import ChebyshevSeries, ContourRule
from sample_info.linearized.leave_out_solvers import MaskedSeries, Resolvent, spectral_bound
from tests.sample_info.networks import some_kernels


def test_the_bound_on_the_spectrum_is_tight_and_above() -> None:
    kernel, _, _ = some_kernels(30, 1)
    largest = float(torch.linalg.eigvalsh(kernel)[-1])
    assert largest < spectral_bound(kernel) < 1.01 * largest


@pytest.mark.parametrize("k", [1, 3])
def test_elimination_at_every_node_is_the_masked_series_for_sets_too(k: int) -> None:
    kernel, _, residual = some_kernels(20, k)
    descent, sets = LinearizedDescent(learning_rate=0.05, steps=500), torch.tensor([[0, 3, 7], [11, 2, 19]])
    high = spectral_bound(kernel)
    series = ChebyshevSeries.fit(lambda s: descent.filter(s, 20), 0.0, high, 1e-14)
    rule = ContourRule.fit(lambda s: descent.filter(s, 20), 0.0, high, 1e-14)
    ours = Resolvent(kernel, residual, 0.0, rule).differences(sets)
    done = []
    with on_progress(lambda _title, fraction, _detail: done.append(fraction)):
        theirs = MaskedSeries(kernel, residual, series).differences(sets)
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)
    assert done == [j / (series.degree + 2) for j in range(1, series.degree + 1)]  # two products are left for effects
