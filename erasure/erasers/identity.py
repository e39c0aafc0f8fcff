"""The control: nothing is erased."""

from dataclasses import dataclass
from typing import Self

from torch import Tensor

from erasure.eraser import Eraser
from erasure.moments import ClassMoments


@dataclass(frozen=True, repr=False)
class IdentityEraser(Eraser):
    """The control x' = x, with which every other eraser is compared (docs/methods/index.md).

    Example:
        >>> import torch
        >>> from erasure import IdentityEraser
        >>> x, z = torch.randn(20, 3), torch.arange(20) % 2
        >>> bool(torch.equal(IdentityEraser.fit(x, z)(x), x))
        True
    """

    version = 1

    mean: Tensor
    num_classes: int

    @classmethod
    def from_moments(cls, moments: ClassMoments) -> Self:
        return cls(moments.mean, moments.num_classes)

    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:  # noqa: ARG002
        return x
