"""Two approximations of a function on the tangent kernel's spectrum, such as the filter of `LinearizedDescent`.

A Chebyshev series replaces thousands of steps by a few dozen products. Cauchy's integral over an ellipse around the
spectrum gives a sum of resolvents, whose number does not depend on the number of steps.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

_MOST_POINTS = 2**17  # limit on the points of the cosine transform, and on the nodes of a rule
_EPS = torch.finfo(torch.float64).eps  # rounding per value; coefficients of N values have √N times this error
_GROWTH = 10.0  # largest growth of the function from interval to ellipse, which costs digits by cancellation


@dataclass(frozen=True)
class ChebyshevSeries:
    """A series Σ_j c_j T_j on [low, high], mapped to [-1, 1].

    `truncation` bounds |function - series| on the interval by the sum of omitted coefficients and rounding errors.
    Coefficients beyond the transform are assumed to be smaller than those in its upper half.
    """

    coefficients: Tensor  # c_j, [degree + 1] float64
    low: float
    high: float
    truncation: float

    @property
    def degree(self) -> int:
        return len(self.coefficients) - 1

    @classmethod
    def fit(cls, function: Callable[[Tensor], Tensor], low: float, high: float, tolerance: float) -> "ChebyshevSeries":
        """Return the shortest series with an error of at most `tolerance` times the function's largest value.

        Coefficients are the discrete cosine transform of the function at Chebyshev points. The number of points is
        doubled until the upper half of the coefficients is negligible (Trefethen 2013, chapters 3 and 8). The function
        takes points [N] float64 and must be smooth on the interval.

        Raises:
            ValueError: no series of degree 65,536 or less is accurate enough.
        """
        from scipy.fft import dct  # imported here so that launches of finished runs start fast

        points = 32
        while points <= _MOST_POINTS:
            points *= 2
            angles = torch.pi * (torch.arange(points, dtype=torch.float64) + 0.5) / points
            values = function(low + (high - low) * (angles / 2).cos().square())  # (1 + cos)/2, accurate near low
            coefficients = torch.from_numpy(dct(values.numpy(), type=2)) / points
            coefficients[0] /= 2
            tails = coefficients.abs().flip(0).cumsum(0).flip(0)  # tails[j]: error of stopping before j
            largest, rounding = float(values.abs().max()), _EPS * points**0.5
            allowed, beyond = max(2 * rounding, tolerance) * largest, float(tails[points // 2])
            if beyond <= max(rounding, 1e-3 * tolerance) * largest:
                length = max(1, int((tails > allowed - beyond).sum()))
                return cls(coefficients[:length].clone(), low, high, float(tails[length]) + beyond)
        raise ValueError(
            f"no Chebyshev series of degree {_MOST_POINTS // 2:,} reaches a tolerance of {tolerance:g} on "
            f"[{low:g}, {high:g}]: raise the tolerance, lower steps, or train to convergence"
        )


@dataclass(frozen=True)
class ContourRule:
    """A rule f(x) ≈ 2 Re Σ_j weights_j / (nodes_j - x) on an interval."""

    nodes: Tensor  # z_j in the upper half plane, [q] complex128
    weights: Tensor  # [q] complex128
    error: float = math.nan  # largest |f(x) - rule(x)| at 1,025 Chebyshev points

    @classmethod
    def fit(
        cls,
        function: Callable[[Tensor], Tensor],
        low: float,
        high: float,
        tolerance: float,
        *,
        most_nodes: int = _MOST_POINTS,
    ) -> "ContourRule":
        """Return the trapezoidal rule on an ellipse with foci at the interval's ends (Trefethen & Weideman 2014).

        The ellipse is as wide as the function's growth outside the interval allows. The number of nodes is doubled
        until the rule's error is at most `tolerance` times the function's largest value, or stops falling at the level
        of rounding. The function takes float64 and complex128 tensors; it must be real on the interval and analytic in
        a neighbourhood.

        Raises:
            ValueError: more than `most_nodes` nodes are needed.
        """
        points = low + (high - low) * torch.linspace(0, math.pi / 2, 1025, dtype=torch.float64).cos().square()
        largest, rho = float(function(points).abs().max()), 3.0
        while float(function(_map(low, high, rho, 256)[0]).abs().nan_to_num(math.inf).max()) > _GROWTH * largest:
            rho = 1 + (rho - 1) / 1.3
        q, before = 8, math.inf
        while q <= most_nodes:
            nodes, slopes = _map(low, high, rho, q)
            rule = cls(nodes, function(nodes) * slopes / (2 * q))
            error = max(float((rule(part) - function(part)).abs().max()) for part in points.split(64))
            if error <= tolerance * largest or (error > before / 2 and error < 1e-9 * largest):
                return replace(rule, error=error)
            q, before = 2 * q, error
        raise ValueError(f"no rule of {most_nodes:,} nodes is good enough on [{low:g}, {high:g}]: lower steps")

    def __call__(self, points: Tensor) -> Tensor:
        """Evaluate the rule at points [p]."""
        return 2 * (self.weights / (self.nodes - points[:, None])).sum(1).real


def _map(low: float, high: float, rho: float, q: int) -> tuple[Tensor, Tensor]:
    """Return points z on the upper half of the ellipse and dz/dθ / i, [q]."""
    w = rho * torch.exp(1j * math.pi * (torch.arange(q, dtype=torch.float64) + 0.5) / q)
    # (w + 1/w)/2 + 1 = (w + 1)²/(2w) gives an accurate distance from the lower end
    return low + (high - low) / 4 * (w + 1).square() / w, (high - low) / 4 * (w - 1 / w)
