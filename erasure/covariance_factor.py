"""Square-root factors of singular and regular covariances, exact for constant pixels."""

import torch
from torch import Tensor

_EPS = torch.finfo(torch.float64).eps
_BLOCK = 384  # below this size a triangular product is not worth splitting


class CovarianceFactor:
    """F with F Fᵀ = Σ for a positive semi-definite Σ [d, d], and its pseudo-inverse F⁺, as operators.

    Coordinates are first scaled to unit variance, so that dim pixels are treated like bright ones. Coordinates without
    variance are left out. If the rest has full rank, F is a Cholesky factor, which takes a third of d³ multiply-adds.
    Otherwise F comes from an eigendecomposition without its null space. F⁺ is never formed.

    Args:
        covariance: Σ, [d, d] float64.
        mean: means of the coordinates, [d]; a standard deviation at their rounding level counts as zero.
        examples: number of examples that Σ was computed from.
        epsilon: relative precision of these examples. Directions whose variance could be due to their rounding count
            as having none.

    Attributes:
        rank: number r of columns of F, the rank of Σ.
        full_rank: whether Σ is of full rank on the coordinates that vary.

    Raises:
        ValueError: a rank above the limit that the number of examples sets, because rounding errors then count as
            variance.
    """

    def __init__(
        self, covariance: Tensor, mean: Tensor | None = None, examples: int | None = None, epsilon: float = _EPS
    ) -> None:
        std = covariance.diagonal().clamp(min=0).sqrt()
        # A constant pixel c comes out of float64 sums with a deviation of about c · 2e-16, never exactly 0.
        self._live = (std > (0.0 if mean is None else 32 * _EPS * mean.abs())).nonzero().squeeze(1)
        self._std = std[self._live, None]
        relative = torch.zeros_like(self._std) if mean is None else mean[self._live, None] / self._std
        self._rounding = 16 * _EPS * (1 + relative.square()).sum().sqrt()  # of scaled means
        self._dim = len(covariance)
        every = len(self._live) == self._dim
        correlation = (covariance if every else covariance[self._live][:, self._live]) / self._std / self._std.mT
        factor, info = torch.linalg.cholesky_ex(correlation)
        tolerance = len(self._live) * _EPS
        noise = _rounding_variance(relative, epsilon)
        # L Lᵀ equals Σ to rounding, so its least eigenvalue reveals a singular Σ; the pivots may be far larger.
        self.full_rank = bool((info == 0) & (least_eigenvalue(factor) > noise.clamp(min=100 * tolerance)))
        if self.full_rank:
            self._cholesky = factor
            self.rank = len(factor)
        else:
            values, vectors = torch.linalg.eigh(correlation)
            positive = (values > 10 * tolerance * values[-1:].clamp(min=0)) & (values > noise)
            self._root, self._vectors = values[positive].sqrt()[:, None], vectors[:, positive]
            self.rank = len(self._root)
        if examples is not None and self.rank >= examples:
            raise ValueError(
                f"the covariance of {examples} examples has rank {self.rank}, above the possible {examples - 1}: "
                "rounding passes for variance; subtract the mean from the data, and compute moments in float64"
            )

    @property
    def matrix(self) -> Tensor:
        """F itself, [d, r]."""
        return self.multiply(torch.eye(self.rank, dtype=torch.float64, device=self._std.device))

    def multiply(self, b: Tensor) -> Tensor:
        """Return F b, [d, m], for b [r, m]."""
        product = lower_multiply(self._cholesky, b) if self.full_rank else self._vectors @ (self._root * b)
        return self._embed(product * self._std)

    def multiply_transposed(self, b: Tensor) -> Tensor:
        """Return Fᵀ b, [r, m], for b [d, m]."""
        b = b[self._live] * self._std
        return lower_multiply_transposed(self._cholesky, b) if self.full_rank else self._root * (self._vectors.T @ b)

    def solve(self, b: Tensor) -> Tensor:
        """Return F⁺ b, [r, m], for b [d, m]."""
        b = b[self._live] / self._std
        if self.full_rank:
            return torch.linalg.solve_triangular(self._cholesky, b, upper=False)
        return self._vectors.T @ b / self._root

    def solve_transposed(self, b: Tensor) -> Tensor:
        """Return F⁺ᵀ b, [d, m], for b [r, m]."""
        if self.full_rank:
            solved = torch.linalg.solve_triangular(self._cholesky.T, b, upper=True)
        else:
            solved = self._vectors @ (b / self._root)
        return self._embed(solved / self._std)

    def null_projection(self, b: Tensor) -> tuple[Tensor, Tensor]:
        """Return thin factors [d, q], [q, d] of the projection that removes the part of `b` [d, m] outside Σ's range.

        The projection is orthogonal in coordinates of unit variance. The factors are empty if Σ has no null space, or
        if `b` is only rounding error there.
        """
        if self.full_rank:
            return b.new_empty(len(b), 0), b.new_empty(0, len(b))
        scaled = b[self._live] / self._std
        outside = scaled - self._vectors @ (self._vectors.T @ scaled)
        outside -= self._vectors @ (self._vectors.T @ outside)  # twice is enough for orthogonality to rounding
        v, sizes, _ = torch.linalg.svd(outside, full_matrices=False)
        v = v[:, sizes > self._rounding]
        return self._embed(v * self._std), self._embed(v / self._std).T

    def _embed(self, rows: Tensor) -> Tensor:
        """Extend rows for the coordinates that vary to all coordinates, with zeros for the others."""
        if len(self._live) == self._dim:
            return rows
        full = rows.new_zeros(self._dim, rows.shape[1])
        full[self._live] = rows
        return full


def _rounding_variance(relative: Tensor, epsilon: float) -> Tensor:
    """Return the variance below which a direction of coordinates of unit variance may be rounding error alone.

    Rounding to a relative `epsilon` adds ε²/12 times the mean square of a coordinate. Hidden states of a network have
    been rounded many times, and erasers amplify rounding; a factor of up to 6,000 was measured in float32. The power of
    2/3 allows a factor of 9e4 in float32 and of 60 in bfloat16. It also limits how far an eraser amplifies rounding of
    its input.
    """
    squares = 1 + relative.square()
    return (epsilon**2 / 12 * (squares.median() if len(squares) else squares.sum())) ** (2 / 3)


def least_eigenvalue(lower: Tensor) -> Tensor:
    """Return an upper bound on the least eigenvalue of L Lᵀ, by inverse iteration from L's smallest pivot."""
    pivots = lower.diagonal()
    vector = (pivots == pivots.min()).to(lower)[:, None] if len(lower) else lower.new_ones(0, 1)
    size = lower.new_tensor(torch.inf)
    for _ in range(4):
        vector = torch.cholesky_solve(vector / vector.norm(), lower)
        size = vector.norm()
    return 1 / size


def lower_multiply(lower: Tensor, b: Tensor) -> Tensor:
    """Return L b for a lower triangular L, at little more than half the cost of a general product."""
    half = len(lower) // 2
    if half < _BLOCK:
        return lower @ b
    below = torch.addmm(lower_multiply(lower[half:, half:], b[half:]), lower[half:, :half], b[:half])
    return torch.cat([lower_multiply(lower[:half, :half], b[:half]), below])


def lower_multiply_transposed(lower: Tensor, b: Tensor) -> Tensor:
    """Return Lᵀ b for a lower triangular L."""
    half = len(lower) // 2
    if half < _BLOCK:
        return lower.T @ b
    above = lower_multiply_transposed(lower[:half, :half], b[:half])
    above = torch.addmm(above, lower[half:, :half].T, b[half:])
    return torch.cat([above, lower_multiply_transposed(lower[half:, half:], b[half:])])
