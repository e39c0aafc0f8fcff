"""Oracle LEACE: linear erasure by an edit that depends on the concept of each example."""

from dataclasses import dataclass, field
from typing import Annotated, Self

import torch
from torch import Tensor

from erasure.concept_moments import ConceptMoments
from erasure.eraser import Eraser
from erasure.moments import ClassMoments
from erasure.projection_eraser import constant_columns, made_constant


@dataclass(frozen=True, repr=False)
class OracleLeaceEraser(Eraser):
    """The smallest edit given the concept z: x - Σ_xz Σ_zz⁺ (z - E z) (Belrose et al. 2023, Theorem 5.1).

    For one-hot labels Σ_xz Σ_zz⁺ (z - E z) = m_z - m̄, so every class is shifted to the global mean. For any other
    concept this term is the least-squares prediction of x from z, and the residual is kept.

    Attributes:
        means: class means m_j, [k, d], with m̄ for a class without examples. For a concept of m columns, the slopes
            (Σ_xz Σ_zz⁺)ᵀ, [m, d].
        constant: coordinates that vary with the concept alone, and are constant afterwards (`ProjectionEraser`).
        concept_mean: E z, [m]; None for classes.
        concepts: name and number of columns of each concept; empty for classes.

    Example:
        >>> import torch
        >>> from erasure import ConceptMoments, OracleLeaceEraser
        >>> age = torch.rand(100, dtype=torch.float64)
        >>> x = torch.randn(100, 3, dtype=torch.float64) + age[:, None]
        >>> eraser = OracleLeaceEraser.fit(x, age)
        >>> bool(ConceptMoments.fit(eraser(x, age), age).cross.abs().max() < 1e-12)
        True
    """

    mean: Tensor
    num_classes: int | None
    means: Annotated[Tensor, "k d"]
    constant: tuple[int, ...] = field(default=(), kw_only=True)
    concept_mean: Annotated[Tensor | None, "k"] = field(default=None, kw_only=True)
    concepts: tuple[tuple[str, int], ...] = field(default=(), kw_only=True)
    version = 1
    uses_labels = True
    erased_order = 1
    any_concept = True

    @classmethod
    def from_moments(cls, moments: ClassMoments | ConceptMoments) -> Self:
        """Fit from the moments of classes or of another concept.

        Raises:
            ValueError: a class has one example, or the concept does not vary.
        """
        if isinstance(moments, ConceptMoments):
            moments.require_examples()
            factor = moments.concept_factor(moments.positions())
            slopes = factor.solve_transposed(factor.solve(moments.cross.T))
            before = moments.total.diagonal()
            constant = constant_columns(cls, moments, before, before - (moments.cross * slopes.T).sum(1))
            named = tuple(moments.concepts.items())
            return cls(moments.mean, None, slopes, constant=constant, concept_mean=moments.concept_mean, concepts=named)
        moments.require_examples(unused=True)
        constant = constant_columns(cls, moments, moments.total.diagonal(), moments.within.diagonal())
        means = torch.where(moments.counts[:, None] > 0, moments.means, moments.mean)
        return cls(moments.mean, moments.num_classes, means, constant=constant)

    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:
        """Return x less its prediction from z, which is labels [n] for classes and columns [n, m] otherwise."""
        assert z is not None
        if self.concept_mean is not None:
            erased = x - (z.to(x) - self.concept_mean) @ self.means
        else:
            erased = x - self.means[z] + self.mean
        return made_constant(erased, self.constant, self.mean)
