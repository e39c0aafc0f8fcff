"""QLEACE: the smallest edit after which no quadratic predictor beats a constant."""

import logging
import math
from dataclasses import dataclass
from typing import Annotated, Any, Self

import torch
from torch import Tensor

from erasure.barycenter_search import align, reported_classes
from erasure.covariance_factor import CovarianceFactor
from erasure.eraser import Eraser
from erasure.inputs import real_number
from erasure.moments import ClassMoments

log = logging.getLogger(__name__)

_ROUNDS, _ROUNDS_OF_LIMITED_RANK = 100, 30


class ClassMapsEraser(Eraser):
    """An eraser with one affine map per class, x -> A_j (x - m_j) + m̄; its subclasses have `means` and `maps`."""

    uses_labels = True
    means: Tensor
    maps: Tensor  # A_jᵀ, [k, d, d]

    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:
        assert z is not None
        erased = torch.empty_like(x)
        by_class, sizes = z.argsort(stable=True), z.bincount(minlength=len(self.maps)).tolist()
        for j, rows in enumerate(by_class.split(sizes)):
            erased[rows] = (x[rows] - self.means[j]) @ self.maps[j] + self.mean
        return erased


@dataclass(frozen=True, repr=False)
class QleaceEraser(ClassMapsEraser):
    """Quadratic LEACE (Quirke & Belrose 2025, Theorem 2.6): T_j(x) = A_j (x - m_j) + m̄, one map per class.

    Every class is transported to the Bures-Wasserstein barycenter of the class covariances. Classes may differ in rank,
    because of constant pixels or of fewer examples than pixels. No map can raise the rank of a class, so the target is
    then a covariance of the lowest rank. Class means and covariances are equal to rounding in either case. The edit is
    the smallest possible if all classes have full rank. With limited rank the problem is not convex and the search is
    local, so a smaller edit may exist.

    Attributes:
        means: class means m_j, [k, d].
        maps: A_jᵀ, [k, d, d].
        excess: estimated excess of the edit over the smallest possible edit, relative to the variance of the data. With
            limited rank it is relative to a local minimum, which may itself be some percent above the global one.

    Example:
        >>> import torch
        >>> from erasure import QleaceEraser
        >>> z = torch.arange(300) % 3
        >>> x = torch.randn(300, 4, dtype=torch.float64) * (1 + z[:, None])
        >>> erased = QleaceEraser.fit(x, z)(x, z)
        >>> bool(torch.allclose(erased[z == 0].T.cov(), erased[z == 2].T.cov()))
        True
    """

    mean: Tensor
    num_classes: int
    means: Annotated[Tensor, "k d"]
    maps: Annotated[Tensor, "k d d"]
    excess: float
    version = 1
    erased_order = 2

    @classmethod
    def require_options(cls, *, tolerance: float = 1e-8, **_: Any) -> None:
        if not 0 <= real_number(tolerance, "tolerance") < math.inf:
            raise ValueError(f"tolerance={tolerance}: must be at least 0, and finite")

    @classmethod
    def from_moments(cls, moments: ClassMoments, *, tolerance: float = 1e-8) -> Self:
        """Fit from class moments.

        Args:
            moments: moments of the data to erase, with at least two examples per class.
            tolerance: `excess` at which to stop, in the unit of the certificate's edit size. The equality of the
                covariances does not depend on it.

        Raises:
            ValueError: a class with fewer than two examples or without variance, or moments that are rounding error
                (`CovarianceFactor`), or a tolerance that is no finite number or negative.
        """
        cls.require_options(tolerance=tolerance)
        moments.require_examples()
        factors = [
            CovarianceFactor(moments.covariance(j), moments.means[j], moments.sizes[j], moments.epsilon)
            for j in reported_classes(moments.num_classes)
        ]
        rank = _common_rank(factors)
        # with limited rank the problem is not convex, and saddle points can slow the search
        varying = int((moments.within.diagonal() > 0).sum())
        rounds = _ROUNDS if rank == varying else _ROUNDS_OF_LIMITED_RANK
        alignment = align(
            factors, moments.weights.tolist(), moments.within, tolerance=tolerance, max_rounds=rounds, rank=rank
        )
        if not alignment.excess[-1] <= tolerance:
            log.warning(
                "QLEACE stopped after %d rounds: its edit may be %.0e of the variance larger than %s (the equality of "
                "the covariances does not depend on that)",
                len(alignment.excess),
                alignment.excess[-1],
                "need be" if rank == varying else "the least one nearby",
            )
        return cls(
            mean=moments.mean,
            num_classes=moments.num_classes,
            means=moments.means,
            maps=alignment.maps(factors),
            excess=alignment.excess[-1],
        )

    @classmethod
    def matrices(cls, num_classes: int) -> float:
        return 13.0 + 2.1 * num_classes


def _common_rank(factors: list[CovarianceFactor]) -> int:
    """Return the lowest rank of a class covariance, the highest rank to which all classes can be transported."""
    ranks = [factor.rank for factor in factors]
    lowest, highest = min(ranks), max(ranks)
    if lowest == 0:
        raise ValueError(
            f"class {ranks.index(0)} has no variance, all its examples are alike: QLEACE would have to "
            "remove all variance from every class; drop the class"
        )
    if lowest < highest:
        log.info("class covariances have ranks %d to %d: all are transported to rank %d", lowest, highest, lowest)
    return lowest
