"""The digits, and images with the covariances that erasers meet: a folder's, or synthetic ones of their spectrum."""

import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from erasure.datasets.digits import Digits
from erasure.datasets.image_folder import ImageFolder
from erasure.source import splits

_SPLITS: Any = {"flip": False, "validation_size": None, "test_fraction": 0.2, "split_seed": 0}
DIGITS = Digits(name="digits", **_SPLITS)


def standardised_digits(side: int = 8, *, whole: bool = False) -> tuple[Tensor, Tensor]:
    """Return the digits' training split, or all: images [n, 1, side, side] of mean 0 and variance 1, labels [n]."""
    raw = DIGITS.load()
    part = raw.train if whole else splits(DIGITS, raw)["train"]
    images = part.images.float()
    if side != images.shape[-1]:
        images = F.interpolate(images, size=(side, side), mode="bilinear")
    return (images - images.mean()) / images.std(), part.labels


def side_of(dim: int) -> int:
    """Side of colour images of `dim` values.

    Raises:
        ValueError: no even side gives that many.
    """
    side = math.isqrt(max(dim, 0) // 3)
    if 3 * side * side != dim or side % 2 or not side:
        raise ValueError(f"--dim={dim}: must be 3 x side x side with an even side, such as 192, 768 or 3072")
    return side


def labelled_images(side: int, samples: int, classes: int, root: str = "") -> tuple[Tensor, Tensor, str]:
    """Training images [n, 3, side, side] uint8, their labels [n], and what they are.

    Args:
        side: to which real images are averaged.
        samples: at most; of real images, which are sorted by class, evenly spaced.
        classes: of real images as many as there are.
        root: a folder of images (`dataset=image_folder`); without one synthetic ones are made.

    Raises:
        ValueError: it has another number of classes, or is none.
    """
    if not root:
        images, labels = synthetic_images(side, samples, classes)
        return images, labels, f"synthetic 1/f images, {side} x {side}, n = {samples:,}, k = {classes}"
    found = ImageFolder(name="images", root=root, size=None, channels=3, **_SPLITS).load()
    if len(found.class_names) != classes:
        raise ValueError(f"--classes={classes}: {root} has {len(found.class_names)}")
    n = min(samples, len(found.train))
    rows = torch.arange(n) * len(found.train) // n
    images = F.adaptive_avg_pool2d(found.train.images[rows].float(), side).round().to(torch.uint8)
    return images, found.train.labels[rows], f"{Path(root).name}, {side} x {side}, n = {n:,}"


def synthetic_images(side: int, samples: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Gaussian images whose amplitude falls with frequency as in photographs, a little differently per class."""
    generator = torch.Generator().manual_seed(seed)
    fy, fx = torch.fft.fftfreq(side)[:, None], torch.fft.rfftfreq(side)[None]
    labels = torch.arange(samples) % classes
    images = torch.empty(samples, 3, side, side, dtype=torch.uint8)
    mixing = torch.tensor([[1.0, 0.35, 0.1], [1.0, 0.0, -0.2], [1.0, -0.35, 0.1]])  # colours vary together
    for j in range(classes):
        stretch = 1 + 0.5 * torch.rand(2, generator=generator)
        amplitude = ((stretch[0] * fy) ** 2 + (stretch[1] * fx) ** 2 + 1 / side**2) ** -0.55
        rows = (labels == j).nonzero().squeeze(1)
        noise = torch.randn(len(rows), 3, side, side, generator=generator)
        smooth = torch.fft.irfft2(torch.fft.rfft2(noise) * amplitude, s=(side, side))
        smooth = torch.einsum("ij,njhw->nihw", mixing, smooth / smooth.std())
        mean = 20 * torch.fft.irfft2(torch.fft.rfft2(torch.randn(side, side, generator=generator)) * amplitude**1.5)
        mean = mean.clamp(-40, 40)
        images[rows] = (120 + mean + 45 * smooth).round().clamp(0, 255).to(torch.uint8)
    return images, labels
