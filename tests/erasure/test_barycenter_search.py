"""Optimal transport between covariances, and their barycenter, against textbook formulas."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from erasure.barycenter_search import align, transport
from erasure.covariance_factor import CovarianceFactor


def root(sigma: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(sigma)
    return (vectors * values.clamp(min=0).sqrt()) @ vectors.mT


def textbook_map(source: Tensor, target: Tensor) -> Tensor:
    """Σ^-½ (Σ^½ S Σ^½)^½ Σ^-½ (equation 6)."""
    half = root(source)
    inverse = torch.linalg.inv(half)
    return inverse @ root(half @ target @ half) @ inverse


def transport_map(source: Tensor, target: Tensor) -> Tensor:
    return transport(CovarianceFactor(source), CovarianceFactor(target))


def covariance(seed: int, d: int = 6, rank: int | None = None, condition: float = 100.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    q = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
    values = torch.logspace(0, -torch.tensor(condition).log10().item(), d, dtype=torch.float64)
    values[(rank or d) :] = 0
    return (q * values) @ q.T


@given(seed=st.integers(0, 1000), condition=st.sampled_from([1.0, 1e2, 1e5]))
def test_transport_map_is_the_textbooks(seed: int, condition: float) -> None:
    source, target = covariance(seed, condition=condition), covariance(seed + 1, condition=condition)
    a = transport_map(source, target)
    torch.testing.assert_close(a, textbook_map(source, target), rtol=1e-6, atol=1e-6 * condition**0.5)
    assert (torch.linalg.eigvalsh(a) > 0).all()


@pytest.mark.parametrize("condition", [1e2, 1e6, 1e8])
def test_transported_covariance_is_exact_where_the_textbooks_is_not(condition: float) -> None:
    source, target = covariance(0, 30, condition=condition), covariance(1, 30, condition=condition)

    def gap(a: Tensor) -> float:
        return float((a @ source @ a.T - target).norm() / target.norm())

    assert gap(transport_map(source, target)) < 1e-13
    if condition == 1e8:
        assert gap(textbook_map(source, target)) > 1e-11  # the condition number squared


def test_transport_between_singular_covariances() -> None:
    source, target = covariance(0, 8, rank=5), covariance(1, 8, rank=3)
    a = transport_map(source, target)
    torch.testing.assert_close(a @ source @ a.T, target, rtol=0, atol=1e-14)


def barycenter(
    sigmas: Tensor, weights: list[float] | None = None, *, tolerance: float = 1e-14, rank: int | None = None
) -> Tensor:
    weights = weights or [1 / len(sigmas)] * len(sigmas)
    average = (torch.tensor(weights, dtype=torch.float64)[:, None, None] * sigmas).sum(0)
    alignment = align([CovarianceFactor(one) for one in sigmas], weights, average, tolerance=tolerance, rank=rank)
    assert rank is None or alignment.root.shape == (sigmas.shape[1], rank)
    return alignment.root @ alignment.root.T


@pytest.mark.parametrize(("k", "condition"), [(2, 1e3), (5, 1e4), (20, 1e2)])
def test_barycenter_satisfies_its_equation(k: int, condition: float) -> None:
    sigmas = torch.stack([covariance(seed, condition=condition) for seed in range(k)])
    s = barycenter(sigmas)
    half = root(s)
    equation = torch.stack([root(half @ sigma @ half) for sigma in sigmas]).mean(0)  # Lemma 2.4
    torch.testing.assert_close(equation, s, rtol=0, atol=1e-5)
    assert (equation - barycenter(sigmas, tolerance=1e-2)).norm() > 10 * (equation - s).norm()


def test_barycenter_of_commuting_covariances() -> None:
    diagonals = torch.rand(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.01
    expected = torch.diag(diagonals.sqrt().mean(0) ** 2)
    torch.testing.assert_close(barycenter(torch.diag_embed(diagonals)), expected, rtol=0, atol=1e-6)


def test_a_barycenter_of_limited_rank_keeps_the_directions_of_most_variance() -> None:
    diagonals = torch.tensor([[9.0, 4.0, 1.0, 0.1, 0.1], [4.0, 9.0, 4.0, 0.1, 0.2]], dtype=torch.float64)
    expected = torch.diag(diagonals.sqrt().mean(0).square() * torch.tensor([1, 1, 1, 0, 0]))
    torch.testing.assert_close(barycenter(torch.diag_embed(diagonals), rank=3), expected, rtol=0, atol=1e-5)
