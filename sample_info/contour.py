"""A smooth function of a matrix as a sum of resolvents: Cauchy's integral over an ellipse around the spectrum."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

_GROWTH = 10.0  # how much larger than on the interval the function may be on the ellipse: digits lost to cancellation
_WIDEST = 3.0
_MOST_NODES = 2**17


@dataclass(frozen=True)
class ContourRule:
    """f(x) ≈ 2 Re Σ_j weights_j / (nodes_j - x) on [low, high].

    Attributes:
        nodes: z_j in the upper half plane, [q] complex128.
        weights: [q] complex128.
        low, high: the interval.
        error: largest |f(x) - rule(x)| seen at Chebyshev points between those of the rule's own resolution.
    """

    nodes: Tensor
    weights: Tensor
    low: float
    high: float
    error: float

    @classmethod
    def fit(cls, function: Callable[[Tensor], Tensor], low: float, high: float, tolerance: float) -> "ContourRule":
        """The trapezoidal rule on an ellipse with foci at the interval's ends (Trefethen & Weideman 2014).

        The ellipse is as wide as the function's growth off the interval allows; nodes are doubled until the rule's
        error is `tolerance` times the function's largest value, or stops falling at the level of rounding.

        Args:
            function: real on the interval, analytic in a neighbourhood; of float64 and complex128 tensors.
            low, high: the interval.
            tolerance: relative.

        Raises:
            ValueError: more than 131,072 nodes are needed.
        """
        angles = torch.linspace(0, math.pi, 1025, dtype=torch.float64)
        points = low + (high - low) * (angles / 2).cos().square()
        values = function(points)
        largest = float(values.abs().max())
        rho = _ellipse(function, low, high, _GROWTH * largest)
        q, before = 8, math.inf
        while q <= _MOST_NODES:
            nodes, weights = _rule(function, low, high, rho, q)
            error = max(float((_sum(nodes, weights, part) - function(part)).abs().max()) for part in points.split(64))
            if error <= tolerance * largest or (error > before / 2 and error < 1e-9 * largest):
                return cls(nodes, weights, low, high, error)
            q, before = 2 * q, error
        raise ValueError(f"no rule of {_MOST_NODES:,} nodes is good enough on [{low:g}, {high:g}]: lower steps")

    def __call__(self, points: Tensor) -> Tensor:
        """The rule's values at points [p]."""
        return _sum(self.nodes, self.weights, points)


def _ellipse(function: Callable[[Tensor], Tensor], low: float, high: float, most: float) -> float:
    """The widest ellipse, by its parameter ρ, on which the function stays below `most`."""
    rho = _WIDEST
    while float(function(_map(low, high, rho, 256)[0]).abs().nan_to_num(math.inf).max()) > most:
        rho = 1 + (rho - 1) / 1.3
    return rho


def _map(low: float, high: float, rho: float, q: int) -> tuple[Tensor, Tensor]:
    """Points z on the upper half of the ellipse and dz/dθ / i, [q]."""
    w = rho * torch.exp(1j * math.pi * (torch.arange(q, dtype=torch.float64) + 0.5) / q)
    # (w + 1/w)/2 + 1 = (w + 1)²/(2w): all digits of the distance from the lower end
    return low + (high - low) / 4 * (w + 1).square() / w, (high - low) / 4 * (w - 1 / w)


def _rule(function: Callable[[Tensor], Tensor], low: float, high: float, rho: float, q: int) -> tuple[Tensor, Tensor]:
    nodes, slopes = _map(low, high, rho, q)
    return nodes, function(nodes) * slopes / (2 * q)


def _sum(nodes: Tensor, weights: Tensor, points: Tensor) -> Tensor:
    return 2 * (weights / (nodes - points[:, None])).sum(1).real
