"""Largest eigenpairs against dense eigendecompositions."""

import pytest
import torch

from erasure.lanczos import largest_eigenpairs


@pytest.mark.parametrize("d", [1, 5, 60, 300])
def test_the_largest_eigenpairs_are_the_dense_ones(d: int) -> None:
    generator = torch.Generator().manual_seed(d)
    roots = torch.randn(3, d, d, dtype=torch.float64, generator=generator)
    signs = torch.tensor([1.0, -1.0, 0.1], dtype=torch.float64)[:, None, None]
    matrices = signs * (roots @ roots.mT / d - 0.3 * torch.eye(d, dtype=torch.float64))
    starts = torch.randn(3, d, dtype=torch.float64, generator=generator)
    eigenvalues, vectors = largest_eigenpairs(lambda v: (matrices @ v[..., None])[..., 0], starts)
    for matrix, value, vector in zip(matrices, eigenvalues, vectors, strict=True):
        values, dense = torch.linalg.eigh(matrix)
        best = int(values.abs().argmax())
        assert value == pytest.approx(float(values[best]), rel=1e-12)
        assert float(vector @ dense[:, best]) ** 2 == pytest.approx(1, abs=1e-10)
        assert float(vector.norm()) == pytest.approx(1)


def test_eigenpairs_of_operators_without_rank_or_with_an_invariant_start() -> None:
    starts = torch.tensor([[3.0, 4.0, 0.0]], dtype=torch.float64).repeat(3, 1)
    starts[1] = 0
    factors = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    values, vectors = largest_eigenpairs(lambda v: factors * v, starts)
    assert values == pytest.approx([0, 0, 2])
    torch.testing.assert_close(vectors.abs(), torch.stack([starts[0], starts[1], starts[2]]) / 5)


def test_the_search_for_an_eigenpair_stops_where_it_is_told_to() -> None:
    diagonal = torch.linspace(0.9, 1, 400, dtype=torch.float64)
    products = []

    def multiply(v: torch.Tensor) -> torch.Tensor:
        products.append(0)
        return diagonal * v

    counts = []
    for tolerance, rounding in ((1e-2, 0.0), (1e-6, 0.0), (1e-8, 1e-2)):
        products.clear()
        start = torch.ones(1, 400, dtype=torch.float64)
        largest_eigenpairs(multiply, start, tolerance=tolerance, rounding=rounding)
        counts.append(len(products))
    assert counts[0] == counts[2] == 40
    assert counts[1] > 40
