"""A smooth function of a matrix as a Chebyshev series: as many products as accuracy needs, no more."""

from collections.abc import Callable
from dataclasses import dataclass

import scipy.fft
import torch
from torch import Tensor

_LARGEST_DEGREE = 2**17
_EPS = torch.finfo(torch.float64).eps  # per value; over N of them the transform's coefficients add up to √N times it


@dataclass(frozen=True)
class ChebyshevSeries:
    """Σ_j c_j T_j, on [low, high] mapped to [-1, 1].

    Attributes:
        coefficients: c_j, [degree + 1] float64.
        low, high: the interval.
        truncation: bound on |function - series| over the interval: the sum of the coefficients left out, rounding
            included; those beyond the transform are taken to be less than its upper half.
    """

    coefficients: Tensor
    low: float
    high: float
    truncation: float

    @property
    def degree(self) -> int:
        return len(self.coefficients) - 1

    @classmethod
    def fit(cls, function: Callable[[Tensor], Tensor], low: float, high: float, tolerance: float) -> "ChebyshevSeries":
        """The shortest series with an error of at most `tolerance` times the function's largest value.

        Coefficients come from a discrete cosine transform of the function at Chebyshev points, twice as many until
        the upper half of them is negligible (Trefethen 2013, chapters 3 and 8).

        Args:
            function: of points [N] float64, smooth on the interval.
            low, high: the interval.
            tolerance: relative, e.g. 1e-14.

        Raises:
            ValueError: no series of degree 65,536 or less is good enough.
        """
        points = 32
        while points <= _LARGEST_DEGREE:
            points *= 2
            angles = torch.pi * (torch.arange(points, dtype=torch.float64) + 0.5) / points
            values = function(low + (high - low) * (angles / 2).cos().square())  # (1 + cos)/2 with all digits at low
            coefficients = torch.from_numpy(scipy.fft.dct(values.numpy(), type=2)) / points
            coefficients[0] /= 2
            tails = coefficients.abs().flip(0).cumsum(0).flip(0)  # tails[j]: what is lost by stopping before j
            largest, rounding = float(values.abs().max()), _EPS * points**0.5
            allowed, beyond = max(2 * rounding, tolerance) * largest, float(tails[points // 2])
            if beyond <= max(rounding, 1e-3 * tolerance) * largest:  # all above fall faster still
                kept = max(1, int((tails > allowed - beyond).sum()))
                return cls(coefficients[:kept].clone(), low, high, float(tails[kept]) + beyond)
        raise ValueError(
            f"no Chebyshev series of degree {_LARGEST_DEGREE // 2:,} reaches a tolerance of {tolerance:g} on "
            f"[{low:g}, {high:g}]: raise the tolerance, lower steps, or train to convergence"
        )
