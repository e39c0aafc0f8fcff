"""Oracle LEACE: equal class means, by moving each class as a whole."""

from dataclasses import dataclass, field
from typing import Annotated, Self

from torch import Tensor

from erasure.eraser import Eraser
from erasure.moments import ClassMoments
from erasure.projection import constant_columns, made_constant


@dataclass(frozen=True, repr=False)
class OracleLeaceEraser(Eraser):
    """x - Σ_xz Σ_zz⁺ (z - E z) (Belrose et al. 2023, Theorem 5.1): the smallest edit, given the label.

    For one-hot labels Σ_xz Σ_zz⁺ (z - E z) = m_z - m̄: every class is shifted to the global mean.

    Attributes:
        means: class means m_j, [k, d].
        constant: coordinates that vary between classes only, and are constant afterwards (`ProjectionEraser`).
    """

    mean: Tensor
    num_classes: int
    means: Annotated[Tensor, "k d"]
    constant: tuple[int, ...] = field(default=(), kw_only=True)
    version = 1
    uses_labels = True
    erased_order = 1

    @classmethod
    def from_moments(cls, moments: ClassMoments) -> Self:
        """Fit from class moments; raises ValueError for a class with fewer than two examples."""
        moments.require_examples()
        constant = constant_columns(moments.total.diagonal(), moments.within.diagonal())
        return cls(moments.mean, moments.num_classes, moments.means, constant=constant)

    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:
        assert z is not None
        return made_constant(x - self.means[z] + self.mean, self.constant, self.mean)
