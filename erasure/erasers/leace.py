"""LEACE: the smallest edit after which no linear predictor beats the constant one."""

from dataclasses import dataclass
from typing import Self

import torch

from erasure.linalg import CovarianceFactor
from erasure.moments import ClassMoments
from erasure.projection import ProjectionEraser, removed_columns


@dataclass(frozen=True, repr=False)
class LeaceEraser(ProjectionEraser):
    """Least-squares concept erasure (Belrose et al. 2023, Theorem 4.3): r(x) = x - W⁺UUᵀW (x - m̄).

    W whitens the data and U spans the whitened class means. Any square root of Σ_xx gives the same
    projection, so that with F Fᵀ = Σ_xx it is F U Uᵀ F⁺: one Cholesky factor instead of an
    eigendecomposition. It removes k - 1 dimensions, fewer where class means coincide.

    Nearly collinear coordinates have directions of less variance than float64 can tell from none, in which W cannot
    be computed but class means still differ: those means, k - 1 dimensions at most, are projected out as they are.
    """

    version = 1
    erased_order = 1

    @classmethod
    def from_moments(cls, moments: ClassMoments, *, rank_tolerance: float = 1e-10) -> Self:
        """Fit from class moments.

        Args:
            moments: at least two examples per class.
            rank_tolerance: directions of the whitened class means whose singular value is below this
                fraction of the largest are taken to be rounding. Relative: an absolute tolerance leaves
                class information in low-contrast data.

        Raises:
            ValueError: a class with fewer than two examples, or moments that are rounding (`CovarianceFactor`).
        """
        moments.require_examples()
        cross, total = moments.cross, moments.total
        factor = CovarianceFactor(total, moments.mean, moments.n)
        directions, sizes, _ = torch.linalg.svd(factor.solve(cross), full_matrices=False)
        kept = sizes > rank_tolerance * sizes[:1]
        kept[moments.num_classes - 1 :] = False  # the columns of Σ_xz sum to zero: rank k - 1 at most
        directions = directions[:, kept]
        hidden_left, hidden_right = factor.null_projection(moments.shifts.T)
        left = torch.cat([factor.multiply(directions), hidden_left], 1)
        right = torch.cat([factor.solve_transposed(directions).T, hidden_right])
        constant = removed_columns(total, left, right)
        return cls(moments.mean, moments.num_classes, left, right, constant=constant)
