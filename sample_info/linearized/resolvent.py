"""What is left out, from one inverse (t → ∞) or one eigendecomposition, whatever t: elimination of a block.

A smooth function of a matrix is a sum of resolvents: Cauchy's integral over an ellipse around the spectrum. For each z
the resolvent R = (z - A)⁻¹ of A = Θ + λI loses a set S of examples by elimination of a block: R r changes by
R_{·S} R_SS⁻¹ (R r)_S. In the eigenbasis R is diagonal, so that a node of the contour costs O(n²) for all n systems
without one example; steps, however many, only show in the nodes' weights.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from erasure.linalg import largest_eigenpairs

_MARGIN = 1.001  # of the bound on the spectrum, above what Lanczos finds
_ROUNDING = 1e-13  # relative size of an eigenvalue that float64 cannot tell from zero


def spectral_bound(kernel: Tensor) -> float:
    """A proven upper bound on the largest eigenvalue of a symmetric matrix, a tenth of a percent above it.

    Lanczos finds the eigenvalue; a Cholesky factorisation of bound · I - kernel proves that there is none above.

    Raises:
        ValueError: the kernel is zero or not finite.
    """
    if not bool(kernel.isfinite().all()):
        raise ValueError("the kernel has values that are not finite: the network's gradients overflow on these inputs")
    start = torch.randn(1, len(kernel), generator=torch.Generator().manual_seed(0), dtype=kernel.dtype).to(kernel)
    (bound,), _ = largest_eigenpairs(lambda v: (kernel @ v[0])[None], start, tolerance=1e-4)
    if not bound > 0:
        raise ValueError("the kernel is zero: no output depends on any parameter, so that no example can matter")
    while True:
        bound *= _MARGIN
        gap = torch.neg(kernel)
        gap.diagonal().add_(bound)
        if not int(torch.linalg.cholesky_ex(gap).info):
            return bound


def inverse(kernel: Tensor, weight_decay: float) -> Tensor:
    """(Θ + λI)⁻¹.

    Raises:
        ValueError: Θ + λI is singular to rounding.
    """
    shifted = kernel.clone()
    shifted.diagonal().add_(weight_decay)
    factor, info = torch.linalg.cholesky_ex(shifted)
    pivots = factor.diagonal().square()
    if int(info) or float(pivots.min() / pivots.max()) < _ROUNDING:
        raise ValueError(
            "the kernel is singular (examples that repeat, or more outputs than parameters), so that training without "
            "weight decay has no limit in float64: set weight_decay above 0, or a finite number of steps"
        )
    return torch.cholesky_inverse(factor)


class Elimination:
    """A⁻¹ r and its change without a set S, for A = Θ + λI: B_{·S} B_SS⁻¹ (B r)_S with B = A⁻¹ (appendix E).

    Of a kernel Θ [n k, n k] float64, a residual r [n, k] and a shift λ.

    Raises:
        ValueError: A is singular.
    """

    def __init__(self, kernel: Tensor, residual: Tensor, shift: float) -> None:
        self._n, self._k = residual.shape
        self._inverse = inverse(kernel, shift)
        self.full = self._inverse @ residual.flatten()

    def bytes_per_set(self, size: int = 1) -> int:
        """Memory that `differences` takes for each set of so many examples."""
        columns = size * self._k
        return 8 * ((columns + 2) * len(self._inverse) + 3 * columns * columns)

    def differences(self, sets: Tensor) -> Tensor:
        """A⁻¹ r - A_-S⁻¹ r_-S for each of `sets` [b, s], as columns [n k, b]."""
        n, k, columns = self._n, self._k, sets.shape[1] * self._k
        blocks = self._inverse.view(n, k, n, k)[sets[:, :, None], :, sets[:, None]]  # [b, s, s, k, k]
        blocks = blocks.transpose(2, 3).reshape(-1, columns, columns)
        solved = torch.linalg.solve(blocks, self.full.view(n, k)[sets].flatten(1))
        return torch.einsum("rbc,bc->rb", self._inverse.view(n * k, n, k)[:, sets].flatten(2), solved)


_GROWTH = 10.0  # how much larger than on the interval the function may be on the ellipse: digits lost to cancellation
_WIDEST = 3.0
_MOST_NODES = 2**17


@dataclass(frozen=True)
class ContourRule:
    """f(x) ≈ 2 Re Σ_j weights_j / (nodes_j - x) on an interval.

    Attributes:
        nodes: z_j in the upper half plane, [q] complex128.
        weights: [q] complex128.
        error: largest |f(x) - rule(x)| seen at Chebyshev points between those of the rule's own resolution.
    """

    nodes: Tensor
    weights: Tensor
    error: float = math.nan

    @classmethod
    def fit(cls, function: Callable[[Tensor], Tensor], low: float, high: float, tolerance: float) -> "ContourRule":
        """The trapezoidal rule on an ellipse with foci at the interval's ends (Trefethen & Weideman 2014).

        The ellipse is as wide as the function's growth off the interval allows; nodes are doubled until the rule's
        error is `tolerance` times the function's largest value, or stops falling at the level of rounding. The
        function is real on the interval, analytic in a neighbourhood; it takes float64 and complex128 tensors.

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
            nodes, slopes = _map(low, high, rho, q)
            rule = cls(nodes, function(nodes) * slopes / (2 * q))
            error = max(float((rule(part) - function(part)).abs().max()) for part in points.split(64))
            if error <= tolerance * largest or (error > before / 2 and error < 1e-9 * largest):
                return replace(rule, error=error)
            q, before = 2 * q, error
        raise ValueError(f"no rule of {_MOST_NODES:,} nodes is good enough on [{low:g}, {high:g}]: lower steps")

    def __call__(self, points: Tensor) -> Tensor:
        """The rule's values at points [p]."""
        return 2 * (self.weights / (self.nodes - points[:, None])).sum(1).real


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


class Resolvent:
    """f(A) r and its change without a set, for A = Θ + λI, by a rule of f on an interval with A's spectrum.

    Of a kernel Θ [n k, n k] float64, a residual r [n, k] and a shift λ. Meant for sets of one example or a few.
    """

    def __init__(self, kernel: Tensor, residual: Tensor, shift: float, rule: ContourRule) -> None:
        self._n, self._k = residual.shape
        values, self._vectors = torch.linalg.eigh(kernel)
        self._gaps = 1 / (rule.nodes.to(kernel.device)[None] - (values.clamp(min=0) + shift)[:, None])  # [n k, q]
        self._weights = rule.weights.to(kernel.device)
        rotated = self._vectors.T @ residual.flatten()
        self.full = self._vectors @ (rotated * 2 * (self._gaps @ self._weights).real)  # f(A) r, [n k]
        self._solutions = (self._times(self._vectors, self._gaps * rotated[:, None])).view(self._n, self._k, -1)

    def bytes_per_set(self, size: int = 1) -> int:
        """Memory that `differences` takes for each set of so many examples."""
        k, (rows, q) = size * self._k, self._gaps.shape
        return 8 * ((k * k + k + 8) * rows + 4 * (k * k + 2 * k) * q)

    def differences(self, sets: Tensor) -> Tensor:
        """f(A) r - f(A_-S) r_-S for each of `sets` [b, s], as columns [n k, b]."""
        b, k = len(sets), sets.shape[1] * self._k
        rows = self._vectors.view(self._n, self._k, -1)[sets].flatten(1, 2)  # [b, k, n k]
        pairs = (rows[:, :, None] * rows[:, None]).flatten(0, 2)
        blocks = self._times(pairs, self._gaps).view(b, k, k, -1).permute(0, 3, 1, 2)  # R_SS at every node
        forces = torch.linalg.solve(blocks, self._solutions[sets].flatten(1, 2).transpose(1, 2))  # [b, q, k]
        forces = 2 * self._weights[:, None] * forces
        rotated = rows.new_zeros(len(self._vectors), b)
        for c in range(k):
            rotated.addcmul_(rows[:, c].T, (self._gaps @ forces[..., c].T).real)
        return self._vectors @ rotated

    @staticmethod
    def _times(real: Tensor, complex_: Tensor) -> Tensor:
        return torch.complex(real @ complex_.real, real @ complex_.imag)
