"""Polar factors are orthonormal, of singular matrices too, and cost no singular vectors."""

import pytest
import torch
from torch import Tensor

from erasure.polar import gram, orthonormalise, polar_factor, rough_polar_factor


@pytest.mark.parametrize(("r", "s"), [(6, 6), (9, 4), (4, 9), (1, 1)])
@pytest.mark.parametrize("smallest", [1.0, 1e-3, 1e-8, 1e-12, 0.0])
def test_polar_factor_is_orthonormal_and_leaves_a_positive_remainder(r: int, s: int, smallest: float) -> None:
    generator = torch.Generator().manual_seed(r)
    left, _, right = torch.linalg.svd(torch.randn(r, s, generator=generator, dtype=torch.float64), full_matrices=False)
    values = torch.linspace(1, smallest, min(r, s), dtype=torch.float64) * 7
    matrix = (left * values) @ right
    u = polar_factor(matrix)
    small = u.T @ u if r >= s else u @ u.T
    torch.testing.assert_close(small, torch.eye(min(r, s), dtype=torch.float64), rtol=0, atol=1e-14)
    largest_trace = float(values.sum())
    assert float((u * matrix).sum()) == pytest.approx(largest_trace, rel=1e-11)


def test_polar_factor_is_batched_and_gram_is_a_product() -> None:
    batch = torch.randn(2, 3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u = polar_factor(batch)
    for i in range(2):
        torch.testing.assert_close(u[i, 1], polar_factor(batch[i, 1]), rtol=0, atol=1e-6)
    wide = torch.randn(20, 1700, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(gram(wide), wide.T @ wide)


def spread(smallest: float) -> Tensor:
    """A matrix [40, 40] whose last singular value is as small as given, all others 1."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.linalg.qr(torch.randn(40, 40, generator=generator, dtype=torch.float64)).Q for _ in range(2))
    return left * torch.tensor([1.0] * 39 + [smallest], dtype=torch.float64) @ right


@pytest.mark.parametrize(
    ("smallest", "least", "most"), [(1.0, 0, 2e-6), (1e-6, 0, 2e-6), (1e-7, 0, 2e-5), (1e-8, 0.02, 0.5)]
)
def test_a_rough_polar_factor_is_orthonormal_but_for_tiny_singular_values(
    smallest: float, least: float, most: float
) -> None:
    """The docstring's case; its trace is as good all the same, and orthonormalising makes it exact."""
    matrix, identity = spread(smallest), torch.eye(40, dtype=torch.float64)
    factor = rough_polar_factor(matrix).double()
    assert least <= float((factor.T @ factor - identity).abs().max()) <= most
    assert float((factor * matrix).sum()) == pytest.approx(39 + smallest, rel=2e-7)
    exact = orthonormalise(factor)
    torch.testing.assert_close(exact.T @ exact, identity, rtol=0, atol=1e-14)


def test_singular_matrices_have_some_polar_factor() -> None:
    """A zero among many others hides from the largest element of XᵀX - I: the series never ended, and refused."""
    rough = orthonormalise(rough_polar_factor(spread(0.0)).double())
    for factor in (polar_factor(spread(0.0)), rough, polar_factor(torch.zeros(4, 3, dtype=torch.float64))):
        torch.testing.assert_close(factor.T @ factor, torch.eye(factor.shape[1]).double(), rtol=0, atol=1e-13)
