"""z-scores per coordinate before erasure, their inverse for display, and a check of precision."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from erasure.eraser import Eraser
from erasure.erasers.gradient_orders import GradientOrdersEraser
from erasure.inputs import by_rows
from erasure.moments import ClassMoments
from erasure.source import LabelledImages


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
class Numbers:
    """Numbers that are erased: pixels on the scale 0..1, or z-scored, in float64 as the moments have them.

    Attributes:
        max_value: what an integer pixel is divided by.
        scaling: applied afterwards; None for none.
        working: dtype of those that stay around whole, [n, ...], on the CPU.
        device: where they are computed.
    """

    max_value: int
    scaling: Scaling | None
    working: torch.dtype
    device: torch.device

    def exact(self, images: Tensor) -> Tensor:
        images = images.to(self.device)
        unit = images.double() if images.is_floating_point() else images.double() / self.max_value
        return unit if self.scaling is None else self.scaling(unit)

    def rounded(self, images: Tensor) -> Tensor:
        return by_rows(lambda rows: self.exact(images[rows]), torch.empty(images.shape, dtype=self.working))

    def erase(self, eraser: Eraser, splits: Mapping[str, LabelledImages], dtype: torch.dtype) -> dict[str, Tensor]:
        """Return the erased images [n, ...] of every split, rounded once, to `dtype`.

        An eraser without a map erases the images of all splits together.
        """
        if eraser.transductive:
            images = torch.cat([self.rounded(part.images) for part in splits.values()])
            labels = torch.cat([part.labels for part in splits.values()])
            erased = eraser(images, labels).to(dtype)
            if isinstance(eraser, GradientOrdersEraser):
                eraser.require_orders(erased, labels)
            return dict(zip(splits, erased.split([len(part) for part in splits.values()]), strict=True))
        return {
            name: by_rows(
                lambda rows, part=part: eraser(self.exact(part.images[rows]), part.labels[rows]),
                torch.empty(part.images.shape, dtype=dtype),
            )
            for name, part in splits.items()
        }


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
        raise ValueError("all training images are alike: there is nothing to learn and nothing to erase")
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
