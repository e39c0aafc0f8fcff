"""Erasers that project: x' = x - (x - m̄) Bᵀ Aᵀ with thin factors, the same for every class."""

from dataclasses import dataclass, field
from typing import Annotated

import torch
from torch import Tensor

from erasure.columns_made_constant import made_constant
from erasure.eraser import Eraser


@dataclass(frozen=True, repr=False)
class ProjectionEraser(Eraser):
    """An affine projection about the global mean, which it keeps. Never stored as a d × d matrix.

    Attributes:
        left: A, [d, r].
        right: B, [r, d], with B A = I.
        constant: coordinates that are removed altogether. They are set to their means: probes that rescale every
            coordinate would learn from its rounding errors.
    """

    mean: Tensor
    num_classes: int | None
    left: Annotated[Tensor, "d r"]
    right: Annotated[Tensor, "r d"]
    constant: tuple[int, ...] = field(default=(), kw_only=True)

    @property
    def removed(self) -> int:
        """Number r of dimensions removed."""
        return self.left.shape[1]

    def without(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return A and B of this projection followed by the removal of orthonormal columns v [d, m] of its range."""
        return torch.cat([self.left, v], 1), torch.cat([self.right, v.T - (v.T @ self.left) @ self.right])

    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:  # noqa: ARG002
        return made_constant(x - (x - self.mean) @ self.right.T @ self.left.T, self.constant, self.mean)
