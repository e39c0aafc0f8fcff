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
        """Return the map to mean 0 and variance 1 for every coordinate; constant coordinates are only centred.

        Args:
            images: training images as stored, [n, C, H, W].
            moments: their moments on the scale 0..1.
        """
        shape = images.shape[1:]
        std = moments.total.diagonal().clamp(min=0).sqrt()
        std = torch.where(std > 0, std, 1.0)  # constant, or of less variance than float64 resolves
        return cls((1 / std).view(shape).cpu(), (-moments.mean / std).view(shape).cpu())

    def __call__(self, x: Tensor) -> Tensor:
        """Scale pixels [n, C, H, W], computed in float64 and rounded once to the dtype of `x`."""
        return self._affine(x, self.scale, self.shift)

    def undo(self, x: Tensor) -> Tensor:
        """Convert erased values to pixels for display, which may lie outside 0..1."""
        return self._affine(x, 1 / self.scale, -self.shift / self.scale)

    def _affine(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        scale, shift = scale.to(x.device), shift.to(x.device)
        return by_rows(lambda rows: x[rows].double() * scale + shift, torch.empty_like(x))


@dataclass(frozen=True)
class Preprocessing:
    """The conversion of stored images to the numbers that are erased: pixels in 0..1, or z-scores.

    Attributes:
        max_value: divisor of integer pixels.
        bounded: whether images with values outside 0..1 are impossible.
        working: dtype of whole arrays of images [n, ...], on the CPU.
        device: device of computations, a few images at a time.
        scaling: map applied to pixels in 0..1; None for none.
    """

    max_value: int
    bounded: bool
    working: torch.dtype
    device: torch.device
    scaling: Scaling | None = None

    def exact(self, images: Tensor) -> Tensor:
        """Convert images [n, ...] in float64, on the device."""
        images = images.to(self.device)
        unit = images.double() if images.is_floating_point() else images.double() / self.max_value
        return unit if self.scaling is None else self.scaling(unit)

    def rounded(self, *parts: Tensor) -> Tensor:
        """Convert all images of some parts to the working dtype, without a copy if nothing changes."""
        if len(parts) == 1 and self.scaling is None and parts[0].dtype == self.working:
            return parts[0]
        sizes = [len(images) for images in parts]
        out = torch.empty(sum(sizes), *parts[0].shape[1:], dtype=self.working)
        for images, place in zip(parts, out.split(sizes), strict=True):
            by_rows(lambda rows, images=images: self.exact(images[rows]), place)
        return out

    def batches(self, images: Tensor) -> Iterator[Tensor]:
        """Convert a few images at a time to the working dtype, on the device."""
        for batch in images.split(ROWS_AT_ONCE):
            yield self.exact(batch).to(self.working)

    def ends(self, shape: torch.Size) -> Tensor:
        """Return the converted ends of the range of pixels, [2, C, H, W] float64; ±∞ if values are not bounded."""
        ends = (0.0, 1.0) if self.bounded else (-math.inf, math.inf)
        expanded = torch.tensor(ends, dtype=torch.float64)[:, None, None, None].expand(2, *shape)
        return expanded if self.scaling is None else self.scaling(expanded)


def require_precision(x: Tensor, moments: ClassMoments, dtype: torch.dtype, remedy: str) -> None:
    """Raise ValueError for vectors so far from zero that rounding to a dtype blurs their differences.

    Rounding a coordinate of mean m adds noise of about eps |m| / √12. The limit is max(0.001, eps) standard deviations
    of the coordinate.

    Args:
        x: training vectors as stored, [n, ...].
        moments: their moments on the scale on which they are rounded.
        dtype: dtype to which the vectors are rounded.
        remedy: end of the error message.
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
