"""Random projection, a control for how much of the effect of an eraser is due to the loss of dimensions."""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from erasure.erasers.alf_qleace import AlfQleaceEraser
from erasure.inputs import whole_number
from erasure.moments import ClassMoments
from erasure.projection_eraser import ProjectionEraser, removed_columns


@dataclass(frozen=True, repr=False)
class RandomEraser(ProjectionEraser):
    """Orthogonal projection about the mean onto a random subspace (Quirke & Belrose 2025, Figure 1).

    Example:
        >>> import torch
        >>> from erasure import RandomEraser
        >>> x, z = torch.randn(50, 5, dtype=torch.float64), torch.arange(50) % 3
        >>> int(torch.linalg.matrix_rank(RandomEraser.fit(x, z, num_directions=2)(x).T.cov()))
        3
    """

    version = 1

    @classmethod
    def require_options(cls, *, num_directions: int | None = None, **_: Any) -> None:
        if num_directions is not None and whole_number(num_directions, "num_directions") < 0:
            raise ValueError(f"num_directions={num_directions}: must be at least 0")

    @classmethod
    def from_moments(cls, moments: ClassMoments, *, num_directions: int | None = None, seed: int = 0) -> Self:
        """Draw the directions to remove, independently of the classes.

        Args:
            moments: moments of the data to erase.
            num_directions: number of dimensions to remove; None for as many as ALF-QLEACE removes with its defaults.
            seed: seed of the draw.

        Raises:
            ValueError: more directions than dimensions, or a negative number.
        """
        if num_directions is None:
            num_directions = AlfQleaceEraser.from_moments(moments).removed
        num_directions = whole_number(num_directions, "num_directions")
        if not 0 <= num_directions <= moments.dim:
            raise ValueError(f"num_directions={num_directions}: must lie between 0 and {moments.dim}, the dimensions")
        left = random_directions(moments, num_directions, seed)
        right = left.T.contiguous()
        constant = removed_columns(cls, moments, moments.total, left, right)
        return cls(moments.mean, moments.num_classes, left, right, constant=constant)


def random_directions(moments: ClassMoments, count: int, seed: int) -> Tensor:
    """Draw uniformly distributed orthonormal columns [d, count], on the device of the moments."""
    generator = torch.Generator().manual_seed(whole_number(seed, "seed"))
    gaussian = torch.randn(moments.dim, count, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(gaussian.to(moments.means.device)).Q
