"""Images for benchmarks: the digits, those of a folder, or synthetic ones with the spectrum of photographs."""

import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from erasure.datasets.digits import Digits
from erasure.datasets.image_folder import ImageFolder
from erasure.splits import splits

SPLITS: Any = {"flip": False, "validation_size": None, "test_fraction": 0.2, "split_seed": 0}
DIGITS = Digits(name="digits", **SPLITS)


def standardised_digits(side: int = 8, *, whole: bool = False) -> tuple[Tensor, Tensor]:
    """Return the digits' training split, or all: images [n, 1, side, side] of mean 0 and variance 1, labels [n]."""
    raw = DIGITS.load()
    part = raw.train if whole else splits(DIGITS, raw)["train"]
    images = part.images.float()
    if side != images.shape[-1]:
        images = F.interpolate(images, size=(side, side), mode="bilinear")
    return (images - images.mean()) / images.std(), part.labels


def side_of(dim: int) -> int:
    """Return the side of colour images of `dim` values.

    Raises:
        ValueError: no even side has so many values.
    """
    side = math.isqrt(max(dim, 0) // 3)
    if 3 * side * side != dim or side % 2 or not side:
        raise ValueError(f"--dim={dim}: must be 3 x side x side with an even side, such as 192, 768 or 3072")
    return side


def labelled_images(side: int, samples: int, classes: int, root: str = "") -> tuple[Tensor, Tensor, str]:
    """Return training images [n, 3, side, side] uint8, labels [n], and a description.

    Args:
        side: of the images; those of a folder are averaged to it.
        samples: at most; evenly spaced images of a folder, which are sorted by class.
        classes: must be those of the folder.
        root: a folder of images (`dataset=image_folder`); synthetic images if empty.

    Raises:
        ValueError: the folder has another number of classes, or is none.
    """
    if not root:
        images, labels = synthetic_images(side, samples, classes)
        return images, labels, f"synthetic 1/f images, {side} x {side}, n = {samples:,}, k = {classes}"
    folder = ImageFolder(name="images", root=root, size=None, channels=3, **SPLITS).load()
    if len(folder.class_names) != classes:
        raise ValueError(f"{root} has {len(folder.class_names)} classes: must have {classes} here")
    n = min(samples, len(folder.train))
    rows = torch.arange(n) * len(folder.train) // n
    images = F.adaptive_avg_pool2d(folder.train.images[rows].float(), side).round().to(torch.uint8)
    return images, folder.train.labels[rows], f"{Path(root).name}, {side} x {side}, n = {n:,}"


def synthetic_images(side: int, samples: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw Gaussian images with the 1/f amplitudes of photographs, slightly different per class."""
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
