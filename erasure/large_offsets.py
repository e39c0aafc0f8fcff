"""A check that a dtype is precise enough for a dataset: its numbers survive rounding to it."""

import torch
from torch import Tensor

from erasure.moments import ClassMoments


def require_precision(x: Tensor, moments: ClassMoments, dtype: torch.dtype, remedy: str) -> None:
    """Raise ValueError where vectors are so far from zero that rounding blurs how they differ.

    Rounding a coordinate to `dtype` adds about eps |m| / √12 to it. It must not exceed a thousandth of the standard
    deviation, or the share that the dtype itself loses of any value.

    Args:
        x: the training vectors [n, ...], before anything was done to them.
        moments: theirs on the scale where they are rounded.
        dtype: that they are rounded to.
        remedy: what to do about it.
    """
    varies = (x.amax(0) != x.amin(0)).flatten().to(moments.means.device)  # moments are rounded: never quite 0
    if not varies.any():
        raise ValueError("all training examples are alike: there is nothing to learn and nothing to erase")
    eps, mean = torch.finfo(dtype).eps, moments.mean.abs()
    std = moments.total.diagonal().clamp(min=0).sqrt()
    blurred = varies & (eps / 12**0.5 * mean > max(1e-3, eps) * std)
    if blurred.any():
        i = int(blurred.nonzero()[0])
        raise ValueError(
            f"column {i} has mean {float(moments.mean[i]):.3g} and standard deviation {float(std[i]):.3g}: rounding to "
            f"{str(dtype).removeprefix('torch.')} blurs it by more than a thousandth, as {int(blurred.sum())} of "
            f"{len(std)} columns; {remedy}"
        )
