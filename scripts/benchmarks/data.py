"""The digits, and images with the covariances that erasers meet: CIFAR-10 as JPEG where at hand, else its spectrum."""

import lzma
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load
from torch import Tensor

from erasure.datasets.digits import Digits
from erasure.decode import decode_all
from erasure.source import splits

CIFAR_JPEG = Path("../shared/data/cifar10-jpeg.safetensors.xz")

DIGITS = Digits(name="digits", flip=False, validation_size=None, test_fraction=0.2, split_seed=0)


def standardised_digits(side: int = 8, *, whole: bool = False) -> tuple[Tensor, Tensor]:
    """The digits' training split, or all: images [n, 1, side, side] of mean 0 and variance 1, labels [n]."""
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


def labelled_images(side: int, samples: int, classes: int, path: Path = CIFAR_JPEG) -> tuple[Tensor, Tensor, str]:
    """Training images [n, 3, side, side] uint8, their labels [n], and what they are.

    Args:
        side: 32 divided by a whole number for real images, otherwise synthetic ones are made.
        samples: at most; CIFAR-10 has 50,000.
        classes: 10 for real images.
        path: safetensors (.xz) with `jpeg`, `offset`, `label` and `test`.
    """
    if path.exists() and classes == 10 and 32 % side == 0:
        images, labels = read_jpegs(path, samples)
        if side < 32:
            images = F.avg_pool2d(images.float(), 32 // side).round().to(torch.uint8)
        return images, labels, f"CIFAR-10 (JPEG), {side} x {side}, n = {len(images):,}"
    images, labels = synthetic_images(side, samples, classes)
    return images, labels, f"synthetic 1/f images, {side} x {side}, n = {samples:,}, k = {classes}"


def read_jpegs(path: Path, samples: int) -> tuple[Tensor, Tensor]:
    """Training images [n, 3, 32, 32] uint8, evenly spaced over the file (which is sorted by class), and labels [n]."""
    content = path.read_bytes()
    stored = load(lzma.decompress(content) if path.suffix == ".xz" else content)
    jpeg, offset = stored["jpeg"].numpy().tobytes(), stored["offset"].tolist()
    training = (stored["test"] == 0).nonzero().squeeze(1)
    n = min(samples, len(training))
    rows = training[torch.arange(n) * len(training) // n]
    encoded = ((str(path), jpeg[offset[row] : offset[row + 1]]) for row in rows.tolist())
    images = decode_all(encoded, size=None, channels=3)
    return images, stored["label"][rows].long()


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
