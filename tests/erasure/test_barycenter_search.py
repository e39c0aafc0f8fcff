"""The search for a barycenter of limited rank, where the barycenter is known."""

import torch

from erasure.barycenter_search import align
from erasure.covariance_factor import CovarianceFactor
from erasure.polar import polar_factor


def test_a_barycenter_of_limited_rank_keeps_the_directions_of_most_variance() -> None:
    diagonals = torch.tensor([[9.0, 4.0, 1.0, 0.1, 0.1], [4.0, 9.0, 4.0, 0.1, 0.2]], dtype=torch.float64)
    sigmas = torch.diag_embed(diagonals)
    factors = [CovarianceFactor(sigma) for sigma in sigmas]
    alignment = align(factors, [0.5, 0.5], sigmas.mean(0), tolerance=1e-14, rank=3, polar=polar_factor)
    expected = torch.diag(diagonals.sqrt().mean(0).square() * torch.tensor([1, 1, 1, 0, 0]))
    assert alignment.root.shape == (5, 3)
    torch.testing.assert_close(alignment.root @ alignment.root.T, expected, rtol=0, atol=1e-7)
