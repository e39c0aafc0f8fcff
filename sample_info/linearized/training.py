"""Gradient descent on squared loss as a filter on the spectrum of the tangent kernel, and two approximations of it.

A Chebyshev series replaces thousands of steps by a few dozen products. By Cauchy's integral over an ellipse around the
spectrum, the filter is also a sum of resolvents, whose number does not depend on the number of steps.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

_MOST_POINTS = 2**17  # of the cosine transform; also most nodes of a rule
_EPS = torch.finfo(torch.float64).eps  # rounding per value; √N times that for the coefficients of N values
_GROWTH = 10.0  # most growth of the function from interval to ellipse: digits lost to cancellation


@dataclass(frozen=True, kw_only=True)
class LinearizedDescent:
    """Full-batch gradient descent from w_0 on (1/n) [Σ_i ½ ‖f(x_i) - y_i‖² + ½ λ ‖w - w_0‖²].

    Args:
        learning_rate: η, of that mean loss, as in the paper's tables.
        steps: t; "converged", or infinitely many, for the limit.
        weight_decay: λ towards w_0, on the scale of the sum, as in the paper.
        time: "discrete" steps, or the "continuous" gradient flow of equations 10, 11, 50 and 53.
        left_out_loss: divisor of the loss without some examples. "sum": n of the whole training set, as in the paper's
            equations. "mean": the number of remaining examples, as in its released code.

    Raises:
        ValueError: a value outside its range.
    """

    learning_rate: float
    steps: float | Literal["converged"]
    weight_decay: float = 0.0
    time: Literal["discrete", "continuous"] = "discrete"
    left_out_loss: Literal["sum", "mean"] = "sum"

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate={self.learning_rate}: must be a positive number")
        if not self.t > 0:
            raise ValueError(f"steps={self.steps}: must be positive; infinite steps train to convergence")
        if self.time == "discrete" and self.finite and self.t != int(self.t):
            raise ValueError(f"steps={self.steps}: discrete time has whole steps; or set time to continuous")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay={self.weight_decay}: must not be negative")

    @property
    def t(self) -> float:
        """The number of steps."""
        return math.inf if self.steps == "converged" else float(self.steps)

    @property
    def finite(self) -> bool:
        """Whether training ends after finitely many steps."""
        return math.isfinite(self.t)

    def effective_n(self, n: int, removed: int = 1) -> int:
        """Return the divisor of the loss of a training without `removed` of n examples."""
        return n if self.left_out_loss == "sum" else n - removed

    def filter(self, eigenvalues: Tensor, n: int) -> Tensor:
        """Return φ_t(s) = (1 - (1 - ηs/n)^t) / s, or (1 - e^{-ηts/n}) / s; its limit 1/s as t → ∞.

        w(t) = w_0 - ∇f_0(X) φ_t(Θ + λI) (f_0(X) - Y): equation 50, with the sign of its derivation. The s are float64
        eigenvalues of Θ + λI, or complex128 points in the upper half plane.
        """
        if not self.finite:
            return 1 / eigenvalues
        step = -self.learning_rate / n * eigenvalues
        if self.time == "continuous":
            left = torch.expm1(self.t * step)
        elif eigenvalues.is_complex():
            left = torch.expm1(self.t * torch.log1p(step))
        else:  # log1p keeps digits of small steps; below -1 the sign alternates
            small = torch.expm1(self.t * torch.log1p(step.clamp(min=-1)))
            left = torch.where(step > -1, small, (1 + step) ** self.t - 1)
        limit = self.t * self.learning_rate / n
        return torch.where(eigenvalues.abs() * limit < 1e-300, limit, -left / eigenvalues)

    def require_stable(self, largest: float, n: int) -> None:
        """Refuse discrete steps that diverge if the largest eigenvalue of Θ, or a bound on it, is `largest`.

        Raises:
            ValueError: names the largest learning rate that is stable.
        """
        limit = 2 * n / (largest + self.weight_decay)
        if self.time == "discrete" and self.learning_rate >= limit:
            raise ValueError(
                f"learning_rate={self.learning_rate:g}: gradient descent diverges on this kernel from {limit:.3g} on "
                f"(2n over its largest eigenvalue and weight decay); lower it, or set time to continuous"
            )


@dataclass(frozen=True)
class SpectralFilter:
    """The filter φ_t of a training whose loss is the mean over n examples, on an interval around its spectrum.

    Attributes:
        descent: the training.
        n: divisor of the loss.
        high: upper end of the interval; the lower one is λ.
        tolerance: error of its approximations, relative to its largest value there.
    """

    descent: LinearizedDescent
    n: int
    high: float
    tolerance: float

    def __call__(self, eigenvalues: Tensor) -> Tensor:
        """Compute φ_t at eigenvalues, as `LinearizedDescent.filter`."""
        return self.descent.filter(eigenvalues, self.n)


@dataclass(frozen=True)
class ChebyshevSeries:
    """Σ_j c_j T_j, on [low, high] mapped to [-1, 1].

    `truncation` bounds |function - series| there: the sum of the omitted coefficients and rounding; coefficients beyond
    the transform are assumed smaller than its upper half.
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

        Coefficients come from a discrete cosine transform of the function at Chebyshev points, whose number is doubled
        until the upper half of the coefficients is negligible (Trefethen 2013, chapters 3 and 8). The function takes
        points [N] float64, and is smooth on the interval.

        Raises:
            ValueError: no series of degree 65,536 or less is good enough.
        """
        from scipy.fft import dct  # lazy: launches of finished runs start fast

        points = 32
        while points <= _MOST_POINTS:
            points *= 2
            angles = torch.pi * (torch.arange(points, dtype=torch.float64) + 0.5) / points
            values = function(low + (high - low) * (angles / 2).cos().square())  # (1 + cos)/2 with all digits at low
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
    """f(x) ≈ 2 Re Σ_j weights_j / (nodes_j - x) on an interval."""

    nodes: Tensor  # z_j in the upper half plane, [q] complex128
    weights: Tensor  # [q] complex128
    error: float = math.nan  # largest |f(x) - rule(x)| at 1,025 Chebyshev points

    @classmethod
    def fit(cls, function: Callable[[Tensor], Tensor], low: float, high: float, tolerance: float) -> "ContourRule":
        """Return the trapezoidal rule on an ellipse with foci at the interval's ends (Trefethen & Weideman 2014).

        The ellipse is as wide as the function's growth off the interval allows; nodes are doubled until the rule's
        error is `tolerance` times the function's largest value, or stops falling at the level of rounding. The
        function is real on the interval, analytic in a neighbourhood; it takes float64 and complex128 tensors.

        Raises:
            ValueError: more than 131,072 nodes are needed.
        """
        points = low + (high - low) * torch.linspace(0, math.pi / 2, 1025, dtype=torch.float64).cos().square()
        largest, rho = float(function(points).abs().max()), 3.0
        while float(function(_map(low, high, rho, 256)[0]).abs().nan_to_num(math.inf).max()) > _GROWTH * largest:
            rho = 1 + (rho - 1) / 1.3
        q, before = 8, math.inf
        while q <= _MOST_POINTS:
            nodes, slopes = _map(low, high, rho, q)
            rule = cls(nodes, function(nodes) * slopes / (2 * q))
            error = max(float((rule(part) - function(part)).abs().max()) for part in points.split(64))
            if error <= tolerance * largest or (error > before / 2 and error < 1e-9 * largest):
                return replace(rule, error=error)
            q, before = 2 * q, error
        raise ValueError(f"no rule of {_MOST_POINTS:,} nodes is good enough on [{low:g}, {high:g}]: lower steps")

    def __call__(self, points: Tensor) -> Tensor:
        """Evaluate the rule at points [p]."""
        return 2 * (self.weights / (self.nodes - points[:, None])).sum(1).real


def _map(low: float, high: float, rho: float, q: int) -> tuple[Tensor, Tensor]:
    """Return points z on the upper half of the ellipse and dz/dθ / i, [q]."""
    w = rho * torch.exp(1j * math.pi * (torch.arange(q, dtype=torch.float64) + 0.5) / q)
    # (w + 1/w)/2 + 1 = (w + 1)²/(2w): all digits of the distance from the lower end
    return low + (high - low) / 4 * (w + 1).square() / w, (high - low) / 4 * (w - 1 / w)
