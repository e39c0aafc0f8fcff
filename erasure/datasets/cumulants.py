"""Planted data: two classes that differ only in chosen cumulants of single directions."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from erasure.dataset import LabelledImages, RawImages, Source
from erasure.store.checked_files import digest


@dataclass(frozen=True, kw_only=True)
class Cumulants(Source):
    """Gaussian vectors [n, d] whose classes differ in planted cumulants, each along a random direction.

    Apart from the planted cumulant a direction has mean 0 and variance 1, and no other cumulant up to the fourth
    differs between classes. Planted directions are scaled by 2 to have the largest variance. Cumulants of single
    directions in Gaussian noise are the mixed-cumulant model of Székely et al. 2024.

    Args:
        n: number of examples, half of each class.
        d: number of dimensions, at least four.
        mean: class means are plus and minus this value, in standard deviations; 0 plants nothing.
        covariance: class variances are 1 plus and 1 minus this value, which must be below 1.
        skewness: third cumulants are plus and minus this value, from a gamma distribution and its mirror image.
        kurtosis: fourth cumulants are plus and minus this value, at most 2, from a mixture of normals with two
            variances and a mixture of normals with two means.
        seed: seed of the examples and directions.
    """

    n: int = 5_000
    d: int = 100
    mean: float = 0.0
    covariance: float = 0.0
    skewness: float = 0.0
    kurtosis: float = 0.0
    seed: int = 0

    version = 1
    slow_to_load: ClassVar[bool] = False

    def load(self) -> RawImages:
        if self.n < 4 or self.d < 4:
            raise ValueError(f"dataset.n={self.n}, dataset.d={self.d}: both must be at least 4")
        for name, most in (("covariance", 0.99), ("kurtosis", 2.0)):
            if not 0 <= getattr(self, name) <= most:
                raise ValueError(f"dataset.{name}={getattr(self, name)}: must be between 0 and {most}")
        if self.skewness < 0:
            raise ValueError(f"dataset.skewness={self.skewness}: must not be negative")
        generator = torch.Generator().manual_seed(self.seed)
        z = torch.arange(self.n) % 2
        sign = 1.0 - 2.0 * z
        x = torch.randn(self.n, self.d, dtype=torch.float64, generator=generator)
        for i, planted in enumerate(self._planted(sign, generator)):
            if planted is not None:
                x[:, i] = 2 * planted
        directions = torch.linalg.qr(torch.randn(self.d, self.d, dtype=torch.float64, generator=generator))[0]
        vectors = (x @ directions.T).float()
        return RawImages(
            LabelledImages(vectors.view(self.n, self.d, 1, 1), z), None, ("positive", "negative"), bounded=False
        )

    def _planted(self, sign: Tensor, generator: torch.Generator) -> list[Tensor | None]:
        """Return the coordinate [n] of each order, or None where nothing is planted."""
        normal, other = torch.randn(2, self.n, dtype=torch.float64, generator=generator)
        coin = torch.randint(2, (self.n,), generator=generator) * 2.0 - 1
        planted: list[Tensor | None] = [None] * 4
        if self.mean:
            planted[0] = torch.randn(self.n, dtype=torch.float64, generator=generator) + self.mean * sign
        if self.covariance:
            planted[1] = (1 + self.covariance * sign).sqrt() * other
        if self.skewness:
            planted[2] = sign * _standard_gamma(4 / self.skewness**2, self.n, generator)
        if self.kurtosis:
            scales = (1 + (self.kurtosis / 3) ** 0.5 * coin).sqrt()
            distance = (self.kurtosis / 2) ** 0.25
            two_normals = distance * coin + (1 - distance**2) ** 0.5 * normal
            planted[3] = torch.where(sign > 0, scales * normal, two_normals)
        return planted

    def content(self) -> str:
        return digest(self.load().train.images)


def _standard_gamma(shape: float, n: int, generator: torch.Generator) -> Tensor:
    """Draw from a gamma distribution of mean 0 and variance 1, by its inverse distribution function on a grid."""
    grid = torch.linspace(-(shape**0.5), 12.0, 200_001, dtype=torch.float64)
    cumulative = torch.special.gammainc(
        torch.tensor(shape, dtype=torch.float64), (grid * shape**0.5 + shape).clamp(min=0)
    )
    uniform = torch.rand(n, dtype=torch.float64, generator=generator) * cumulative[-1]
    above = torch.searchsorted(cumulative, uniform).clamp(1, len(grid) - 1)
    low, high = cumulative[above - 1], cumulative[above]
    fraction = (uniform - low) / (high - low).clamp(min=torch.finfo(torch.float64).tiny)
    return torch.lerp(grid[above - 1], grid[above], fraction)
