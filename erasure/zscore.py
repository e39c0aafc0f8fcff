"""z-scores per coordinate before erasure, and their inverse for display."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from erasure.inputs import by_rows
from erasure.moments import ClassMoments


@dataclass(frozen=True)
class Scaling:
    """The map scale · x + shift from pixels in 0..1 to the scale of erasure, coordinate by coordinate.

    Attributes:
        scale: float64, [C, H, W].
        shift: float64, [C, H, W].
    """

    scale: Tensor
    shift: Tensor

    @classmethod
    def zscore(cls, images: Tensor, moments: ClassMoments) -> Self:
        """Mean 0 and variance 1 for every coordinate of the training images as stored; constant ones are only centred.

        `images` are [n, C, H, W], `moments` theirs on the scale 0..1.
        """
        shape = images.shape[1:]
        std = moments.total.diagonal().clamp(min=0).sqrt()
        std = torch.where(std > 0, std, 1.0)  # constant, or varies by less than squares in float64 can tell
        return cls((1 / std).view(shape).cpu(), (-moments.mean / std).view(shape).cpu())

    def __call__(self, x: Tensor) -> Tensor:
        """Scale pixels [n, C, H, W] in the dtype of `x`; computed in float64, rounded once."""
        return self._affine(x, self.scale, self.shift)

    def undo(self, x: Tensor) -> Tensor:
        """Convert erased values to pixels, for display; they need not lie in 0..1."""
        return self._affine(x, 1 / self.scale, -self.shift / self.scale)

    def _affine(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        scale, shift = scale.to(x.device), shift.to(x.device)
        return by_rows(lambda rows: x[rows].double() * scale + shift, torch.empty_like(x))
