"""Range constraints [2, 1] or [2, d] of optimised values, by a sigmoid of unconstrained numbers."""

import torch
from torch import Tensor

_MARGIN = 1e-3  # how near to the ends values start: at the ends a sigmoid has no slope


def contains(ends: Tensor, x: Tensor) -> bool:
    """Return whether all values of `x` [n, d] are inside, up to rounding."""
    low, high = ends
    slack = 4 * torch.finfo(x.dtype).eps * torch.maximum(low.abs(), high.abs())
    return not bool(((x < low - slack) | (x > high + slack)).any())


def free(ends: Tensor, x: Tensor) -> Tensor:
    """Return the unconstrained numbers of values [n, d]; values at an end are moved slightly inside."""
    low, high = ends
    return ((x - low) / (high - low)).clamp(_MARGIN, 1 - _MARGIN).logit()


def values(ends: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Return values of unconstrained numbers, and their positions in the range, 0 to 1."""
    low, high = ends
    unit = u.sigmoid()
    return (low + (high - low) * unit).clamp(low, high), unit


def pull_back(ends: Tensor, gradient: Tensor, unit: Tensor) -> Tensor:
    """Convert a gradient by values into one by the unconstrained numbers, in place."""
    return gradient.mul_(unit).mul_(1 - unit).mul_(ends[1] - ends[0])
