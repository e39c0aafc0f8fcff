"""LEACE: the smallest edit after which no linear predictor beats the constant one."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from erasure.concept_moments import ConceptMoments
from erasure.covariance_factor import CovarianceFactor
from erasure.inputs import real_number
from erasure.moments import ClassMoments
from erasure.projection_eraser import ProjectionEraser, removed_columns

# In layers after an erased one, whitened class means differed by at most 39 roundings of float64, mostly those of the
# sums. Means of float32 examples, summed in float64, differed by at most 2 roundings of float32. Both limits leave a
# factor of about ten or more.
_ROUNDINGS_OF_SUMS = 1000
_ROUNDINGS_OF_EXAMPLES = 16


@dataclass(frozen=True, repr=False)
class LeaceEraser(ProjectionEraser):
    """Least-squares concept erasure (Belrose et al. 2023, Theorem 4.3): r(x) = x - W⁺UUᵀW (x - m̄).

    W whitens the data and U spans the whitened cross-covariance with the concept. Any square root of Σ_xx gives the
    same projection. With F Fᵀ = Σ_xx it is F U Uᵀ F⁺, which needs a Cholesky factor instead of an eigendecomposition.
    It removes k - 1 dimensions for k classes, and at most m for a concept with m columns. A warning is logged if these
    are all the dimensions in which x varies.

    The concept may be classes, real numbers [n] or [n, m], several labels per example, or a mapping of names to
    several concepts, which are then erased together (`ConceptMoments`).

    Nearly collinear coordinates have directions whose variance is below float64 precision. W cannot be computed there,
    but class means may still differ. These directions, at most k - 1, are projected out as well.

    Example:
        >>> import torch
        >>> from erasure import LeaceEraser
        >>> x, z = torch.randn(200, 8, dtype=torch.float64), torch.arange(200) % 3
        >>> x[:, :3] += torch.nn.functional.one_hot(z)
        >>> eraser = LeaceEraser.fit(x, z)
        >>> eraser
        LeaceEraser(d=8, k=3, erased_order=1, removed=2)
        >>> means = torch.stack([eraser(x)[z == j].mean(0) for j in range(3)])
        >>> bool((means - means.mean(0)).abs().max() < 1e-12)
        True
    """

    version = 1
    erased_order = 1
    any_concept = True

    @classmethod
    def require_options(cls, *, rank_tolerance: float = 1e-10, **_: Any) -> None:
        if not 0 <= real_number(rank_tolerance, "rank_tolerance") < 1:
            raise ValueError(f"rank_tolerance={rank_tolerance}: a fraction of the largest singular value, in [0, 1)")

    @classmethod
    def from_moments(cls, moments: ClassMoments | ConceptMoments, *, rank_tolerance: float = 1e-10) -> Self:
        """Fit from the moments of classes or of another concept.

        Args:
            moments: moments of at least two examples, and of at least two of every class that occurs.
            rank_tolerance: singular values of the whitened cross-covariance below this fraction of the largest count
                as rounding error. It is relative because an absolute tolerance would leave class information in
                low-contrast data. Directions in which class means differ by rounding alone are never removed
                (`exceeds_rounding`).

        Raises:
            ValueError: too few examples, a concept that does not vary, or moments whose variance is rounding error
                (`CovarianceFactor`).
        """
        cls.require_options(rank_tolerance=rank_tolerance)
        total = moments.total
        if isinstance(moments, ConceptMoments):
            moments.require_examples()
            shifts = cross = moments.whitened_cross()
            num_classes, rank = None, cross.shape[1]
        else:
            moments.require_examples(unused=True)
            cross, shifts, num_classes = moments.cross, moments.shifts.T, moments.num_classes
            rank = num_classes - 1  # the columns of Σ_xz sum to zero
        factor = CovarianceFactor(total, moments.mean, moments.n, moments.epsilon)  # F

        def real(directions: Tensor) -> Tensor:
            return exceeds_rounding(factor.solve_transposed(directions).T, shifts, moments)

        u = span(factor.solve(cross), rank_tolerance, rank, real)  # U, of F⁺ Σ_xz
        left, right = factor.multiply(u), factor.solve_transposed(u).T  # F U and Uᵀ F⁺

        # Rank and rounding: where Σ_xx is singular in float64, class means may differ outside its range.
        hidden_left, hidden_right = factor.null_projection(shifts)
        left, right = torch.cat([left, hidden_left], 1), torch.cat([right, hidden_right])
        constant = removed_columns(cls, moments, total, left, right)
        return cls(moments.mean, num_classes, left, right, constant=constant)


def span(whitened: Tensor, rank_tolerance: float, rank: int | None, real: Callable[[Tensor], Tensor]) -> Tensor:
    """Return an orthonormal basis [r, s] of the columns of a whitened cross-covariance, s at most `rank`.

    Args:
        whitened: the cross-covariance, [r, m].
        rank_tolerance: fraction of the largest singular value below which another counts as rounding.
        rank: maximum number of directions; None for no limit.
        real: function of directions [r, s] that returns which of them exceed rounding, [s] booleans
            (`exceeds_rounding`).
    """
    directions, sizes, _ = torch.linalg.svd(whitened, full_matrices=False)
    significant = sizes > rank_tolerance * sizes[:1]
    significant[len(sizes) if rank is None else rank :] = False
    return directions[:, significant & real(directions)]


def exceeds_rounding(rows: Tensor, shifts: Tensor, moments: ClassMoments | ConceptMoments) -> Tensor:
    """Return whether class means differ by more than rounding in each direction, [s] booleans.

    If the concept is already erased, all singular values of the whitened cross-covariance are rounding errors of
    similar size, which a tolerance relative to the largest cannot detect.

    Args:
        rows: directions that map x to unit variance, [s, d].
        shifts: class means less the global mean, or a cross-covariance with a concept of unit variance, [d, m].
        moments: moments of the examples.
    """
    sizes = (moments.total.diagonal() + moments.mean.square()).sqrt()
    steps = max(_ROUNDINGS_OF_SUMS * torch.finfo(sizes.dtype).eps, _ROUNDINGS_OF_EXAMPLES * moments.epsilon)
    rounding = steps * (rows * sizes).norm(dim=1)  # in standard deviations, as are the differences
    # Class means of independent examples differ by about 1/√n, and this is erased whatever the precision. In layers
    # after an erased one, the rounding of bfloat16 moves means by 0.07/√n.
    return (rows @ shifts).square().mean(1).sqrt() > rounding.clamp(max=0.1 / math.sqrt(moments.n))
