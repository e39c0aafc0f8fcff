"""Training of the linearised network, with and without some examples (Harutyunyan et al. 2021, section 5)."""

from dataclasses import replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from sample_info.leave_one_out_effects import Changes, Effects
from sample_info.linearized.descent import LinearizedDescent
from sample_info.linearized.leave_out_solvers import Method, Solver, solver_of, spectral_bound


class LinearizedDynamics:
    """Coefficients a in w(t) = w_0 + ∇f_0(X) a(t), and their changes when examples or sets are left out.

    By equations 10 and 50, with the sign of 50's derivation, a(t) = -φ_t(Θ + λI) (f_0(X) - Y).

    Differences a - a_-i are computed directly, not by subtraction, so that small scores keep their digits.

    Args:
        kernel: Θ, [n k, n k] float64, rows and columns ordered by example, then output.
        residual: f_0(X) - Y, [n, k] float64.
        descent: the training.
        tolerance: accuracy of the filter φ_t, relative to its largest value.
        method: for finite t, a "series" of products with the masked kernel, or "resolvent": one eigendecomposition and
            a contour integral, whose cost does not depend on t; "auto" chooses by the estimated cost.

    Raises:
        ValueError: inconsistent shapes, a learning rate at which training diverges, or t → ∞ without weight decay on a
            singular kernel.
    """

    def __init__(
        self,
        kernel: Tensor,
        residual: Tensor,
        descent: LinearizedDescent,
        *,
        tolerance: float = 1e-14,
        method: Method = "auto",
    ) -> None:
        self.n, self.k = residual.shape
        if kernel.shape != (residual.numel(), residual.numel()):
            raise ValueError(
                f"kernel {list(kernel.shape)} and residual {list(residual.shape)} do not fit: "
                f"{self.n} examples of {self.k} outputs need a kernel of {residual.numel()} rows and columns"
            )
        self.kernel, self.residual, self.descent = kernel, residual, descent
        self._tolerance = tolerance
        self.largest = spectral_bound(kernel)
        descent.require_stable(self.largest, self.n)
        self._single = self._solver(method)  # for single examples
        self.coefficients = -self._single.full.view(self.n, self.k)  # a, [n, k]
        self.how = self._single.how  # the solver, in words

    def predictions(self, initial: Tensor, kernel: Tensor) -> Tensor:
        """Return f_t(x) = f_0(x) + Θ(x, X) a from `initial` [m, k] and `kernel` [m k, n k] (equations 11 and 53)."""
        return initial + (kernel @ self.coefficients.flatten()).view_as(initial)

    @property
    def at_minimum(self) -> Self:
        """The same training, run to convergence."""
        if not self.descent.finite:
            return self
        return type(self)(self.kernel, self.residual, replace(self.descent, steps="converged"))

    @property
    def error_bound(self) -> float:
        """Bound on the error of every ‖w - w_-i‖ by the approximation of φ_t, without rounding."""
        return 2 * self._single.error * float(self.residual.norm()) * self.largest**0.5

    def differences(self, sets: Tensor) -> Tensor:
        """Return a - a_-S for each of `sets`, as columns [n k, b]; rows S hold a itself.

        Sets are b single examples, [b], or b sets of s examples, [b, s]. Sets are exact as well: by block elimination
        for t → ∞, else by a series with their rows and columns masked.
        """
        sets = (sets if sets.ndim == 2 else sets[:, None]).to(self.kernel.device)
        return self._without(sets.shape[1]).differences(sets).neg_()

    def effects(self, examples: Tensor, held_out_kernel: Tensor) -> tuple[Effects, Tensor]:
        """Compute leave-one-out effects of `examples` [b], and f(x_i) - f_-i(x_i) at these examples, [b, k].

        `held_out_kernel` [m k, n k] is the kernel between m held-out inputs and the training inputs.
        """
        coefficients = self.differences(examples)
        on_themselves = torch.einsum("bkr,rb->bk", self.kernel.view(self.n, self.k, -1)[examples], coefficients)
        return Effects.along(coefficients, self.kernel, held_out_kernel, self.k), on_themselves

    def blocks(
        self, memory_bytes: float, held_out: int = 0, *, size: int = 1, count: int | None = None
    ) -> list[Tensor]:
        """Split the n examples, or `count` sets, into non-empty blocks whose effects fit into memory.

        Sets have `size` examples, and effects are computed on `held_out` inputs.
        """
        each = self._without(size).bytes_per_set(size) + 8 * (4 * len(self.kernel) + 4 * held_out * self.k)
        return list(torch.arange(count or self.n).split(max(1, int(memory_bytes // each))))

    def _without(self, size: int) -> Solver:
        """Return the solver for sets of `size` examples."""
        return self._single if size == 1 or not self.descent.finite else self._masked_series

    @cached_property
    def _masked_series(self) -> Solver:
        return self._solver("series")

    def _solver(self, method: Method) -> Solver:
        approximation = {"largest": self.largest, "tolerance": self._tolerance, "method": method}
        return solver_of(self.kernel, self.residual, self.descent, **approximation)


def leave_one_out(dynamics: LinearizedDynamics, held_out_kernel: Tensor, *, memory_bytes: float = 2**30) -> Changes:
    """Compute leave-one-out changes of the linearised network, in column blocks that fit into memory."""
    blocks = dynamics.blocks(memory_bytes, len(held_out_kernel) // dynamics.k)
    return Changes.joined(dynamics.effects(block, held_out_kernel)[0] for block in blocks)
