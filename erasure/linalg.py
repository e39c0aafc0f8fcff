"""Square-root factors of covariances that stay exact when pixels are constant or covariances singular."""

import torch
from torch import Tensor

_EPS = torch.finfo(torch.float64).eps


class CovarianceFactor:
    """F with F Fᵀ = Σ for a positive semi-definite Σ [d, d], and its pseudo-inverse F⁺, as operators.

    Coordinates are first scaled to unit variance, so that a dim pixel is treated like a bright one, and
    those without variance are left out. If what remains is full rank F is a Cholesky factor (one third of
    d³ multiply-adds); otherwise an eigendecomposition without its null space. F and F⁺ are never formed.

    Args:
        covariance: Σ, [d, d] float64.
        mean: the coordinates' means, [d]; a standard deviation at their rounding level counts as none.
    """

    def __init__(self, covariance: Tensor, mean: Tensor) -> None:
        std = covariance.diagonal().clamp(min=0).sqrt()
        # A constant pixel c comes out of float64 sums with a deviation of about c · 2e-16, never exactly 0.
        self._live = (std > 32 * _EPS * mean.abs()).nonzero().squeeze(1)
        self._std = std[self._live]
        correlation = covariance[self._live][:, self._live] / self._std / self._std[:, None]
        factor, info = torch.linalg.cholesky_ex(correlation)
        tolerance = len(self._live) * _EPS
        # Squared pivots bound the smallest eigenvalue from above: one at rounding level means singular.
        self.full_rank = not bool(info) and bool((factor.diagonal() ** 2 > 100 * tolerance).all())
        if self.full_rank:
            self._cholesky = factor
        else:
            values, vectors = torch.linalg.eigh(correlation)
            kept = values > tolerance * values[-1:].clamp(min=0)
            self._root, self._vectors = values[kept].sqrt(), vectors[:, kept]
        self._dim = len(covariance)

    def solve(self, b: Tensor) -> Tensor:
        """F⁺ b, [rank, m], for b [d, m]."""
        b = b[self._live] / self._std[:, None]
        if self.full_rank:
            return torch.linalg.solve_triangular(self._cholesky, b, upper=False)
        return self._vectors.T @ b / self._root[:, None]

    def solve_transposed(self, b: Tensor) -> Tensor:
        """F⁺ᵀ b, [d, m], for b [rank, m]."""
        if self.full_rank:
            solved = torch.linalg.solve_triangular(self._cholesky.T, b, upper=True)
        else:
            solved = self._vectors @ (b / self._root[:, None])
        return self._embed(solved / self._std[:, None])

    def multiply(self, b: Tensor) -> Tensor:
        """F b, [d, m], for b [rank, m]."""
        product = self._cholesky @ b if self.full_rank else self._vectors @ (self._root[:, None] * b)
        return self._embed(product * self._std[:, None])

    def _embed(self, rows: Tensor) -> Tensor:
        """Put rows of the coordinates that vary back among those that do not."""
        full = rows.new_zeros(self._dim, rows.shape[1])
        full[self._live] = rows
        return full
