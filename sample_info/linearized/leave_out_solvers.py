"""Solvers of all leave-one-out systems at once: f(A) r - f(A_-S) r_-S for sets S of examples, with A = Θ + λI.

For t → ∞ a set is removed from B = A⁻¹ by block elimination: B r changes by B_{·S} B_SS⁻¹ (B r)_S. For finite t the
same holds for the resolvents (z - A)⁻¹, whose sum is f. They are diagonal in the eigenbasis, so each node of the
contour costs O(n²) for all n single examples. A series instead masks rows and columns S of the kernel; each term costs
one product with the kernel for all sets. It is faster for one vector, or for few steps and many outputs. Kernels Θ are
[n k, n k] float64, and residuals r are [n, k].
"""

import functools
from typing import Literal

import torch
from torch import Tensor

from erasure.lanczos import largest_eigenpairs
from erasure.progress import report_progress
from sample_info.linearized.descent import LinearizedDescent
from sample_info.linearized.filter_approximations import ChebyshevSeries, ContourRule

_MARGIN = 1.001  # ratio of the bound on the spectrum to the Lanczos estimate
_ROUNDING = 1e-13  # relative size of eigenvalues that are zero in float64
_EIGH_FLOPS = 26.0  # cost of an eigendecomposition and its use, in n³ FLOPs of products


def spectral_bound(kernel: Tensor) -> float:
    """Return a proven upper bound on a symmetric matrix's largest eigenvalue, about 0.1 % above it.

    The Lanczos method estimates the eigenvalue. A Cholesky factorisation of bound · I - kernel proves the bound.

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
    """Return (Θ + λI)⁻¹.

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
    """Solver for A⁻¹ r and its change without a set S, B_{·S} B_SS⁻¹ (B r)_S with B = A⁻¹, A = Θ + λI (appendix E).

    Raises:
        ValueError: A is singular.
    """

    def __init__(self, kernel: Tensor, residual: Tensor, shift: float) -> None:
        self._n, self._k = residual.shape
        self._inverse = inverse(kernel, shift)
        self.full = self._inverse @ residual.flatten()
        self.how, self.error = "block elimination", 0.0

    def bytes_per_set(self, size: int = 1) -> int:
        """Return the memory of `differences` per set of `size` examples."""
        columns = size * self._k
        return 8 * ((columns + 2) * len(self._inverse) + 3 * columns * columns)

    def differences(self, sets: Tensor) -> Tensor:
        """Return A⁻¹ r - A_-S⁻¹ r_-S for each of `sets` [b, s], as columns [n k, b]."""
        n, k, columns = self._n, self._k, sets.shape[1] * self._k
        blocks = self._inverse.view(n, k, n, k)[sets[:, :, None], :, sets[:, None]]  # [b, s, s, k, k]
        blocks = blocks.transpose(2, 3).reshape(-1, columns, columns)
        solved = torch.linalg.solve(blocks, self.full.view(n, k)[sets].flatten(1))
        return torch.einsum("rbc,bc->rb", self._inverse.view(n * k, n, k)[:, sets].flatten(2), solved)


class MaskedSeries:
    """Solver for f(A) r and its change without a set, A = Θ + λI, by a series on [λ, λ + σ] for a bound σ on Θ."""

    def __init__(self, kernel: Tensor, residual: Tensor, series: ChebyshevSeries) -> None:
        self._kernel, self._shape = kernel, residual.shape
        self._scale = 2 / (series.high - series.low)  # Θ + λI is mapped to scale · Θ - I
        self._coefficients = series.coefficients
        now, before = residual.reshape(-1, 1).clone(), None
        terms = [now.squeeze(1).clone()]
        for _ in range(series.degree):
            now, before = self._step(now, before), now
            terms.append(now.squeeze(1).clone())
        self._terms = torch.stack(terms)  # T_j(A) r, [degree + 1, n k]
        self.full = series.coefficients.to(kernel) @ self._terms  # f(A) r, [n k]
        self.how, self.error = f"Chebyshev series of degree {series.degree}", series.truncation

    def bytes_per_set(self, _: int = 1) -> int:
        return 4 * 8 * len(self._kernel)

    def differences(self, sets: Tensor) -> Tensor:
        """Return f(A) r - f(A_-S) r_-S for each of `sets` [b, s], as columns [n k, b].

        The columns are Σ c_j e_j with e_j = T_j(A) r - T_j(MAM) M r. Outside the masked rows, e_j obeys the recurrence
        of T_j. In the masked rows, its second term is zero. Nearly equal numbers are never subtracted.
        """
        columns = torch.arange(len(sets), device=sets.device)[:, None]
        now, before = self._kernel.new_zeros(len(self._kernel), len(sets)), None
        total = torch.zeros_like(now)
        for j, weight in enumerate(self._coefficients.tolist()):
            if j:
                now, before = self._step(now, before), now
                # effects on weights and predictions take two more products with the kernel
                report_progress("leaving out", j / (len(self._coefficients) + 1), f"term {j} of the series")
            now.view(*self._shape, -1)[sets, :, columns] = self._terms[j].view(self._shape)[sets]
            total.add_(now, alpha=weight)
        return total

    def _step(self, now: Tensor, before: Tensor | None) -> Tensor:
        """Compute T_{j+1}(·) of columns from T_j and T_{j-1}, in the memory of `before`; without `before`, T_1."""
        if before is None:
            return torch.addmm(now, self._kernel, now, beta=-1, alpha=self._scale)
        return before.addmm_(self._kernel, now, beta=-1, alpha=2 * self._scale).sub_(now, alpha=2)


class Resolvent:
    """Solver for f(A) r and its change without a small set, by a contour rule on an interval with A's spectrum."""

    def __init__(self, kernel: Tensor, residual: Tensor, shift: float, rule: ContourRule) -> None:
        self._n, self._k = residual.shape
        values, self._vectors = torch.linalg.eigh(kernel)
        self._gaps = 1 / (rule.nodes.to(kernel.device)[None] - (values.clamp(min=0) + shift)[:, None])  # [n k, q]
        self._weights = rule.weights.to(kernel.device)
        rotated = self._vectors.T @ residual.flatten()
        self.full = self._vectors @ (rotated * 2 * (self._gaps @ self._weights).real)  # f(A) r, [n k]
        self.how, self.error = f"resolvents at {len(rule.nodes)} nodes", rule.error
        self._solutions = (self._times(self._vectors, self._gaps * rotated[:, None])).view(self._n, self._k, -1)

    def bytes_per_set(self, size: int = 1) -> int:
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


Method = Literal["auto", "series", "resolvent"]
Solver = Elimination | MaskedSeries | Resolvent


def solver_of(
    kernel: Tensor,
    residual: Tensor,
    descent: LinearizedDescent,
    *,
    largest: float,
    tolerance: float,
    method: Method,
) -> Solver:
    """Choose the solver of a training.

    The spectrum of Θ is within [0, `largest`]. `tolerance` is the error of the approximation of φ_t, relative to its
    largest value; it and `method` apply to finite t only.
    """
    low, high = descent.weight_decay, descent.weight_decay + largest
    if not descent.finite:
        return Elimination(kernel, residual, low)
    phi = functools.partial(descent.filter, n=len(residual))
    if method != "resolvent":
        series = ChebyshevSeries.fit(phi, low, high, tolerance)
        if method == "series" or 2 * series.degree * len(residual) < _EIGH_FLOPS * len(kernel):
            return MaskedSeries(kernel, residual, series)
    return Resolvent(kernel, residual, low, ContourRule.fit(phi, low, high, tolerance))
