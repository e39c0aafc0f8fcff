"""The scale on which images are erased: pixels in 0..1 or z-scores, its inverse for display, and its precision."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from erasure.inputs import ROWS_AT_ONCE, by_rows
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


@dataclass(frozen=True)
class Preprocessing:
    """From stored images to the numbers that are erased: pixels in 0..1, or z-scores, as the moments have them.

    Attributes:
        max_value: what an integer pixel is divided by.
        bounded: values outside 0..1 are no possible image.
        working: dtype of images that stay around whole, [n, ...], on the CPU.
        device: where numbers are computed, a few images at a time.
        scaling: applied to pixels in 0..1; None for none.
    """

    max_value: int
    bounded: bool
    working: torch.dtype
    device: torch.device
    scaling: Scaling | None = None

    def exact(self, images: Tensor) -> Tensor:
        """Return the numbers of images [n, ...] in float64, on the device."""
        images = images.to(self.device)
        unit = images.double() if images.is_floating_point() else images.double() / self.max_value
        return unit if self.scaling is None else self.scaling(unit)

    def rounded(self, *parts: Tensor) -> Tensor:
        """Return the numbers of all images of some parts in the working dtype, not copied where they have it."""
        if len(parts) == 1 and self.scaling is None and parts[0].dtype == self.working:
            return parts[0]
        sizes = [len(images) for images in parts]
        out = torch.empty(sum(sizes), *parts[0].shape[1:], dtype=self.working)
        for images, place in zip(parts, out.split(sizes), strict=True):
            by_rows(lambda rows, images=images: self.exact(images[rows]), place)
        return out

    def batches(self, images: Tensor) -> Iterator[Tensor]:
        """Yield the numbers of a few images at a time in the working dtype, on the device."""
        for batch in images.split(ROWS_AT_ONCE):
            yield self.exact(batch).to(self.working)

    def ends(self, shape: torch.Size) -> Tensor:
        """Return the least and the largest number of possible images [C, H, W], [2, C, H, W] float64; perhaps ±∞."""
        ends = (0.0, 1.0) if self.bounded else (-math.inf, math.inf)
        expanded = torch.tensor(ends, dtype=torch.float64)[:, None, None, None].expand(2, *shape)
        return expanded if self.scaling is None else self.scaling(expanded)


def require_precision(x: Tensor, moments: ClassMoments, dtype: torch.dtype, remedy: str) -> None:
    """Raise ValueError for vectors so far from zero that rounding to a dtype blurs their differences.

    Rounding a coordinate adds about eps |m| / √12 to it. This must not exceed a thousandth of the standard deviation,
    or the relative precision of the dtype.

    Args:
        x: training vectors as stored, [n, ...].
        moments: their moments on the scale on which they are rounded.
        dtype: result of the rounding.
        remedy: last words of the error.
    """
    varies = (x.amax(0) != x.amin(0)).flatten().to(moments.means.device)  # variances are rounded, never exactly 0
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
