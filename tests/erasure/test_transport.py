"""Gaussian optimal transport against its textbook formulas, by eigendecomposition and slowly."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from erasure.polar import polar_factor, rough_polar_factor
from erasure.relaxed_transport import relaxed_transport_map
from erasure.transport import NotConvergedError, as_covariances, barycenter, bures_distance, transport_map


def root(sigma: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(sigma)
    return (vectors * values.clamp(min=0).sqrt()) @ vectors.mT


def textbook_map(source: Tensor, target: Tensor) -> Tensor:
    """Σ^-½ (Σ^½ S Σ^½)^½ Σ^-½ (equation 6)."""
    half = root(source)
    inverse = torch.linalg.inv(half)
    return inverse @ root(half @ target @ half) @ inverse


def textbook_distance(first: Tensor, second: Tensor) -> Tensor:
    half = root(first)
    return (first.trace() + second.trace() - 2 * root(half @ second @ half).trace()).clamp(min=0).sqrt()


def covariance(seed: int, d: int = 6, rank: int | None = None, condition: float = 100.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    q = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
    values = torch.logspace(0, -torch.tensor(condition).log10().item(), d, dtype=torch.float64)
    values[(rank or d) :] = 0
    return (q * values) @ q.T


def covariances(k: int, d: int = 6, **options) -> Tensor:
    return torch.stack([covariance(seed, d, **options) for seed in range(k)])


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
    with pytest.raises(ValueError, match="no linear map takes a covariance of rank 3 to one of rank 5"):
        transport_map(target, source)


@given(seed=st.integers(0, 1000), rank=st.sampled_from([None, 4]))
def test_distance_is_the_textbooks(seed: int, rank: int | None) -> None:
    first, second = covariance(seed), covariance(seed + 1, rank=rank)
    expected = textbook_distance(first, second)
    torch.testing.assert_close(bures_distance(first, second), expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(bures_distance(second, first), expected, rtol=1e-6, atol=1e-7)


def test_distance_of_near_equals_has_no_cancellation() -> None:
    sigma = covariance(0)
    step = 1e-9 * covariance(1)
    assert float(bures_distance(sigma, sigma)) < 1e-14
    larger, smaller = bures_distance(sigma, sigma + step), bures_distance(sigma, sigma + step / 2)
    assert float(larger / smaller) == pytest.approx(2.0, rel=1e-4)


def test_maps_and_distances_are_batched() -> None:
    batch, target = covariances(6).view(2, 3, 6, 6), covariance(9)
    maps, distances = transport_map(batch, target), bures_distance(batch, target)
    assert maps.shape == (2, 3, 6, 6)
    assert distances.shape == (2, 3)
    torch.testing.assert_close(maps[1, 2], transport_map(batch[1, 2], target))
    torch.testing.assert_close(distances[0, 1], bures_distance(batch[0, 1], target))


def cost(sigmas: Tensor, weights: Tensor, s: Tensor) -> float:
    return float(sum(w * textbook_distance(c, s) ** 2 for w, c in zip(weights, sigmas, strict=True)))


@pytest.mark.parametrize("k", [2, 5, 20])
def test_barycenter_satisfies_its_equation_and_no_neighbour_is_nearer(k: int) -> None:
    sigmas = covariances(k, condition=1e3)
    weights = torch.rand(k, generator=torch.Generator().manual_seed(k), dtype=torch.float64) + 0.1
    result = barycenter(sigmas, weights, tolerance=1e-13)
    weights = weights / weights.sum()
    half = root(result.covariance)
    equation = sum(w * root(half @ c @ half) for w, c in zip(weights, sigmas, strict=True))  # Lemma 2.4
    torch.testing.assert_close(equation, result.covariance, rtol=0, atol=1e-6)
    least = cost(sigmas, weights, result.covariance)
    for seed in range(20):
        change = 0.05 * (covariance(100 + seed) - covariance(200 + seed)) * result.covariance.trace() / 3
        other = result.covariance + change
        if torch.linalg.eigvalsh(other)[0] > 0:
            assert cost(sigmas, weights, other) > least


@pytest.mark.parametrize("condition", [1e2, 1e4, 1e8])
def test_the_default_tolerance_is_tight_in_the_barycenter_and_a_loose_one_is_off_by_its_root(condition: float) -> None:
    """Lemma 2.4, relative to S: an excess of 1e-9, the default once, left 2e-6 to 8e-6."""
    sigmas = covariances(4, 20, condition=condition)

    def violation(s: Tensor) -> float:
        half = root(s)
        return float((sum(root(half @ c @ half) for c in sigmas) / 4 - s).norm() / s.norm())

    assert violation(barycenter(sigmas).covariance) < 1e-8
    assert violation(barycenter(sigmas, tolerance=1e-9).covariance) > 1e-6


def test_barycenter_of_two_is_the_closed_form() -> None:
    a, b = covariances(2, condition=1e4)
    w = torch.tensor([0.3, 0.7], dtype=torch.float64)
    t = textbook_map(a, b)
    mix = w[0] * torch.eye(6, dtype=torch.float64) + w[1] * t
    result = barycenter(torch.stack([a, b]), w, tolerance=1e-14)
    torch.testing.assert_close(result.covariance, mix @ a @ mix.T, rtol=0, atol=1e-7)  # the root of the excess


def test_barycenter_of_equals_and_of_commuting_covariances() -> None:
    sigma = covariance(0)
    torch.testing.assert_close(barycenter(sigma.expand(4, 6, 6)).covariance, sigma, rtol=0, atol=1e-13)
    diagonals = torch.rand(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.01
    result = barycenter(torch.diag_embed(diagonals), tolerance=1e-14).covariance
    torch.testing.assert_close(result, torch.diag(diagonals.sqrt().mean(0) ** 2), rtol=0, atol=1e-8)


def test_weights_of_zero_leave_a_covariance_out() -> None:
    sigmas = covariances(3)
    result = barycenter(sigmas, torch.tensor([0.5, 0.5, 0.0]))
    torch.testing.assert_close(result.covariance, barycenter(sigmas[:2]).covariance)


def test_the_reported_excess_bounds_the_true_one_to_an_order_of_magnitude() -> None:
    sigmas = covariances(8, d=20, condition=1e4)
    weights = torch.full((8,), 1 / 8, dtype=torch.float64)
    least = cost(sigmas, weights, barycenter(sigmas, tolerance=1e-15).covariance)
    variance = float(sigmas.mean(0).trace())
    for tolerance in (1e-4, 1e-6, 1e-8):
        result = barycenter(sigmas, tolerance=tolerance)
        assert result.excess[-1] <= tolerance
        assert (cost(sigmas, weights, result.covariance) - least) / variance < 10 * tolerance
        assert all(a >= b for a, b in zip(result.excess[1:], result.excess[2:], strict=False))


def test_bad_weights_and_too_few_rounds_are_errors() -> None:
    sigmas = covariances(3)
    for weights in (torch.tensor([1.0, -1.0, 1.0]), torch.zeros(3), torch.ones(2)):
        with pytest.raises(ValueError, match="need 3 numbers, none negative, not all zero"):
            barycenter(sigmas, weights)
    with pytest.raises(ValueError, match="max_rounds=0: need at least one"):
        barycenter(sigmas, max_rounds=0)
    for rounds in (1, 9):
        assert len(barycenter(sigmas, tolerance=math.inf, max_rounds=rounds).excess) == 1
    with pytest.raises(NotConvergedError, match="after 2 rounds .* tolerance=1e-15: allow more rounds"):
        barycenter(sigmas, tolerance=1e-15, max_rounds=2)


ONE = torch.eye(3, dtype=torch.float64)
NO_COVARIANCES = {
    "NaN": (torch.where(ONE > 0, ONE, torch.nan), "holds values that are not finite"),
    "infinite": (ONE * math.inf, "holds values that are not finite"),
    "asymmetric": (
        ONE + 0.9 * torch.tensor([[0, 1, 0], [0, 0, 0], [0, 0, 0]]),
        r"is not symmetric: .*\(A \+ A.T\) / 2",
    ),
    "asymmetric where it is small": (
        torch.tensor([[1e4, 0, 0], [0, 1e-2, 0.9e-2], [0, 0, 1e-2]], dtype=torch.float64),
        "is not symmetric",
    ),
    "indefinite": (torch.diag(torch.tensor([1.0, -4.0, 1.0])), "has the eigenvalue -4: no covariance"),
    "of a coordinate without variance": (
        ONE - torch.tensor([[1, 0.3, 0], [0.3, 0, 0], [0, 0, 0]]),
        "the eigenvalue -0",
    ),
    "complex": (ONE + 0.5j * (ONE.flip(0) - ONE.flip(0).T), "is complex: a covariance of real coordinates is real"),
    "not square": (ONE[:2], r"has shape \[.*\]: covariances are square matrices"),
    "a vector": (ONE[0], r"has shape \[.*\]: covariances are square matrices"),
    "empty": (torch.empty(0, 0), r"has shape \[.*\]: covariances are square matrices"),
}


@pytest.mark.parametrize("name", NO_COVARIANCES)
def test_matrices_that_are_no_covariances_are_refused(name: str) -> None:
    matrix, said = NO_COVARIANCES[name]
    for call in (
        lambda: bures_distance(matrix, ONE),
        lambda: bures_distance(ONE, matrix),
        lambda: transport_map(matrix, ONE),
        lambda: transport_map(ONE, matrix),
        lambda: barycenter(matrix[None].expand(2, *matrix.shape)),
    ):
        with pytest.raises(ValueError, match=said):
            call()
    with pytest.raises(ValueError, match=r"covariances, matrix 1, "):
        barycenter(torch.stack([ONE.to(bad := NO_COVARIANCES["NaN"][0]), bad]))


def test_rounding_is_no_reason_to_refuse_a_covariance() -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        for n, d, scales in ((2, 400, 0.0), (20, 50, 6.0), (1000, 50, 6.0), (1000, 400, 0.0)):
            generator = torch.Generator().manual_seed(n)
            x = torch.randn(n, d, generator=generator) * torch.logspace(-scales, 0, d) + torch.randn(
                n, 1, generator=generator
            )
            x = x - x.mean(0)
            assert as_covariances((x.T @ x / n).to(dtype), "x").dtype == dtype


@pytest.mark.parametrize(("dtype", "allowed", "refused"), [(torch.float64, 1e-7, 1e-5), (torch.float32, 1e-4, 1e-3)])
def test_covariances_may_be_asymmetric_by_the_root_of_their_precision(
    dtype: torch.dtype, allowed: float, refused: float
) -> None:
    skew = torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    for scale in (1e-6, 1.0, 1e6):  # of one coordinate: what counts is relative to its deviation
        units = torch.tensor([1.0, scale], dtype=torch.float64)
        nearly = (torch.eye(2) + 0.5 * skew + (0.5 + allowed) * skew.T) * units * units[:, None]
        assert as_covariances(nearly.to(dtype), "x").dtype == dtype
    with pytest.raises(ValueError, match="is not symmetric"):
        as_covariances((torch.eye(2) + refused * skew).to(dtype), "x")


def test_a_covariance_without_variance_is_that_of_a_point() -> None:
    zero = torch.zeros(3, 3)
    assert float(bures_distance(zero, ONE)) == pytest.approx(3**0.5)
    assert float(bures_distance(ONE, zero)) == pytest.approx(3**0.5)
    assert float(bures_distance(zero, zero)) == 0
    assert not transport_map(ONE, zero).any()
    with pytest.raises(ValueError, match="rank 0 to one of rank 3"):
        transport_map(zero, ONE)
    # S = Σ λ_j (S^½ Σ_j S^½)^½ = λ S^½, so that S = λ²
    result = barycenter(torch.stack([zero.double(), ONE]), [3, 1])
    torch.testing.assert_close(result.covariance, ONE / 16)
    assert not barycenter(torch.stack([zero, zero])).covariance.any()
    torch.testing.assert_close(relaxed_transport_map(zero, torch.linalg.eigh(ONE), 1.0), torch.eye(3))


def test_lists_and_arrays_are_taken_as_matrices_and_weights() -> None:
    sigmas = covariances(3)
    expected = barycenter(sigmas, torch.tensor([1.0, 2.0, 3.0])).covariance
    for weights in ([1, 2, 3], np.array([1.0, 2.0, 3.0])):
        assert torch.equal(barycenter(sigmas.numpy(), weights).covariance, expected)
    first, second = sigmas[0].numpy(), sigmas[1].numpy()
    assert torch.equal(bures_distance(first, second), bures_distance(sigmas[0], sigmas[1]))
    assert torch.equal(transport_map(first, second), transport_map(sigmas[0], sigmas[1]))
    for weights in ([1, 2, math.nan], [1, 2, math.inf], [1, 2, 1j], [1, 2]):
        with pytest.raises(ValueError, match="need 3 numbers, none negative, not all zero|dtype complex128"):
            barycenter(sigmas, weights)


def test_shapes_that_do_not_match_are_named() -> None:
    with pytest.raises(ValueError, match=r"first \[3, 3\] and second \[4, 4\] do not match"):
        bures_distance(ONE, torch.eye(4))
    with pytest.raises(ValueError, match=r"covariances has shape \[3, 3\]: expected one per class"):
        barycenter(ONE)


def test_matrices_without_a_polar_factor_are_refused() -> None:
    for factor in (polar_factor, rough_polar_factor):
        with pytest.raises(ValueError, match="not finite"):
            factor(torch.full((3, 3), math.nan))
        assert factor(torch.empty(3, 0)).shape == (3, 0)


@pytest.mark.parametrize("function", [transport_map, bures_distance])
def test_covariances_that_require_a_gradient_are_refused(function: Any) -> None:
    """Without a word, the term of a loss would be a constant."""
    one, other = torch.eye(3, requires_grad=True), 2 * torch.eye(3)
    with pytest.raises(ValueError, match=r"requires a gradient, and this function has none: pass \w+\.detach\(\)"):
        function(other, one)
    torch.testing.assert_close(function(other, one.detach()), function(other, torch.eye(3)))
    with torch.no_grad():
        function(other, one)
