"""Inputs in coordinates of the space that they span: a layer that sees them learns nothing outside it."""

from dataclasses import dataclass

import torch
from torch import Tensor

_WORTHWHILE = 0.9  # of the dimensions: above, a product in coordinates is hardly shorter


@dataclass(frozen=True)
class InputSpan:
    """x = coordinates · basis, exactly: gradients δᵀ x of a weight [h, d] are (δᵀ coordinates) · basis.

    Attributes:
        inputs: coordinates, in the shape of an image of r channels of one point [n, r, 1, 1], or [n, r] of vectors.
        basis: orthonormal rows, [r, d].
    """

    inputs: Tensor
    basis: Tensor

    @classmethod
    def of(cls, x: Tensor) -> "InputSpan":
        """The span of inputs [n, ...]; found in float64, to the rounding of their dtype."""
        flat = x.flatten(1).double()
        _, sizes, directions = torch.linalg.svd(flat, full_matrices=False)
        rounding = torch.finfo(torch.float64).eps * max(flat.shape) * sizes[:1]
        basis = directions[sizes > rounding]
        coordinates = (flat @ basis.T).to(x)
        return cls(coordinates if x.ndim == 2 else coordinates[:, :, None, None], basis.to(x))

    @property
    def saves(self) -> bool:
        """Whether the span is small enough for its coordinates to be worth it."""
        rank, dim = self.basis.shape
        return rank <= _WORTHWHILE * dim

    def project(self, weight: Tensor) -> Tensor:
        """A weight [..., h, d] as it acts on coordinates, [..., h, r]."""
        return weight @ self.basis.T

    def lift(self, change: Tensor) -> Tensor:
        """The change of a weight [..., h, d] of which [..., h, r] is the change in coordinates."""
        return change @ self.basis
