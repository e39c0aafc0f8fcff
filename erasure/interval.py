"""A range that optimised values must stay in, and the free numbers behind them."""

from dataclasses import dataclass

import torch
from torch import Tensor

_MARGIN = 1e-3  # how near to the ends values start: at the ends a sigmoid has no slope


@dataclass(frozen=True)
class Interval:
    """Values from `low` to `high`, each one number or [d], reached from free numbers through a sigmoid."""

    low: Tensor
    high: Tensor

    def to(self, x: Tensor) -> "Interval":
        """On the device and in the precision of `x`."""
        return Interval(self.low.to(x), self.high.to(x))

    def rescaled(self, scale: Tensor, shift: Tensor) -> "Interval":
        """Of scale · x + shift, both [d], with scale > 0."""
        return Interval(self.low.to(scale) * scale + shift, self.high.to(scale) * scale + shift)

    def contains(self, x: Tensor) -> bool:
        """Whether all values of `x` [n, d] are inside, but for rounding."""
        here = self.to(x)
        slack = 4 * torch.finfo(x.dtype).eps * torch.maximum(here.low.abs(), here.high.abs())
        return not bool(((x < here.low - slack) | (x > here.high + slack)).any())

    def free(self, x: Tensor) -> Tensor:
        """Free numbers of values; of those at an end, a little inside."""
        return ((x - self.low) / (self.high - self.low)).clamp(_MARGIN, 1 - _MARGIN).logit()

    def values(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Values of free numbers, and how far up the range they are."""
        unit = u.sigmoid()
        return (self.low + (self.high - self.low) * unit).clamp(self.low, self.high), unit

    def pull_back(self, gradient: Tensor, unit: Tensor) -> Tensor:
        """A gradient by values into that by the free numbers, in place."""
        return gradient.mul_(unit).mul_(1 - unit).mul_(self.high - self.low)
