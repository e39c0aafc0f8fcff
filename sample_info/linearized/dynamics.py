"""The linearised network's training, and all n leave-one-out trainings at once (Harutyunyan et al. 2021, section 5)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from models.tangent.ntk import Kernels
from sample_info.changes import Changes, functional_information
from sample_info.linearized.resolvent import ContourRule, Elimination, Resolvent, spectral_bound
from sample_info.linearized.series import ChebyshevSeries, MaskedSeries
from sample_info.linearized.training import LinearizedDescent
from sample_info.problem import Problem

Method = Literal["auto", "series", "resolvent"]

# An eigendecomposition of [n, n], and what follows it, take as long as products of about this many n³ FLOPs, measured.
_EIGH_FLOPS = 26.0


class LinearizedDynamics:
    """Coefficients a with w(t) = w_0 + ∇f_0(X) a(t), and their change without each example.

    a(t) = -φ_t(Θ + λI) (f_0(X) - Y): equations 10 and 50, with the sign that 50's derivation gives. Predictions
    are `predictions`.

    Differences a - a_-i are computed themselves, not subtracted at the end: the scores of examples that hardly
    matter keep their digits.

    Args:
        kernel: Θ, [n k, n k] float64, rows and columns ordered by example, then output.
        residual: f_0(X) - Y, [n, k] float64.
        descent: the training.
        tolerance: accuracy of the filter φ_t, relative to its largest value.
        method: for finite t, a "series" of products with the masked kernel, or "resolvent": one eigendecomposition and
            a contour integral, whose cost does not depend on t; "auto" takes the one that should be faster.

    Attributes:
        coefficients: a, [n, k].
        how: what was done, in a few words.
        filter_error: bound on the error of φ_t on the spectrum.

    Raises:
        ValueError: shapes that do not fit, a learning rate at which training diverges, or t → ∞ without weight decay
            on a singular kernel.
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
        self.largest = spectral_bound(kernel)
        descent.require_stable(self.largest, self.n)
        self._solver = self._reduced = self._choose(self.n, tolerance, method)
        if descent.finite and (effective_n := descent.effective_n(self.n)) != self.n:
            descent.require_stable(self.largest, effective_n)
            self._reduced = self._choose(effective_n, tolerance, method)
        self.coefficients = -self._solver.full.view(self.n, self.k)

    def predictions(self, initial: Tensor, kernel: Tensor) -> Tensor:
        """f_t(x) = f_0(x) + Θ(x, X) a, of `initial` [m, k] and `kernel` [m k, n k] (equations 11 and 53)."""
        return initial + (kernel @ self.coefficients.flatten()).view_as(initial)

    @property
    def error_bound(self) -> float:
        """Bound on the error of every ‖w - w_-i‖ that comes from approximating φ_t; rounding comes on top."""
        return 2 * self.filter_error * float(self.residual.norm()) * self.largest**0.5

    def differences(self, examples: Tensor) -> Tensor:
        """a - a_-i for each of the `examples` [b], as columns [n k, b]; rows i hold a itself, as a_-i has none."""
        found = self._reduced.differences(examples.to(self.kernel.device))
        if self._reduced is not self._solver:
            found += (self._solver.full - self._reduced.full)[:, None]
        return found.neg_()

    def changes(self, examples: Tensor, held_out_kernel: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What leaving out each of `examples` [b] changes, by the kernel [m k, n k] of m held-out inputs with all.

        ‖w - w_-i‖² and the mean over held-out inputs of ‖f(x) - f_-i(x)‖², [b]; f(x_i) - f_-i(x_i), [b, k].
        """
        return changes_by(self.differences(examples), self.kernel, held_out_kernel, examples, self.k)

    def blocks(self, memory_bytes: float) -> list[Tensor]:
        """Examples in blocks whose `changes` fit into so much memory; at least one example each."""
        per_example = self._reduced.bytes_per_example + 3 * 8 * len(self.kernel)
        return list(torch.arange(self.n).split(max(1, int(memory_bytes // per_example))))

    def _choose(self, n: int, tolerance: float, method: Method) -> MaskedSeries | Resolvent | Elimination:
        """The solver of a training whose loss is the mean over n."""
        low = self.descent.weight_decay
        if not self.descent.finite:
            self.how, self.filter_error = "block elimination", 0.0
            return Elimination(self.kernel, self.residual, low)

        def filter_(s: Tensor) -> Tensor:
            return self.descent.filter(s, n)

        if method != "resolvent":
            series = ChebyshevSeries.fit(filter_, low, low + self.largest, tolerance)
            if method == "series" or 2 * series.degree * self.n < _EIGH_FLOPS * len(self.kernel):
                self.how, self.filter_error = f"Chebyshev series of degree {series.degree}", series.truncation
                return MaskedSeries(self.kernel, self.residual, series)
        rule = ContourRule.fit(filter_, low, low + self.largest, tolerance)
        self.how, self.filter_error = f"resolvents at {len(rule.nodes)} nodes", rule.error
        return Resolvent(self.kernel, self.residual, low, rule)


def leave_one_out(dynamics: LinearizedDynamics, held_out_kernel: Tensor, *, memory_bytes: float = 2**30) -> Changes:
    """What leaving out each example changes in the linearised network, in column blocks that fit into memory."""
    blocks = [dynamics.changes(block, held_out_kernel) for block in dynamics.blocks(memory_bytes)]
    weight, prediction, _ = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    return Changes(weight, prediction)


def changes_by(
    coefficients: Tensor, kernel: Tensor, held_out_kernel: Tensor, examples: Tensor, k: int
) -> tuple[Tensor, Tensor, Tensor]:
    """What each of b movements of the weights ∇f(X) a changes, as `LinearizedDynamics.changes` has it.

    Coefficients a are columns [n k, b], the kernels [n k, n k] and [m k, n k]; of movement j the outputs of `examples`
    [b] at j are wanted.
    """
    moved = kernel @ coefficients
    weights = (coefficients * moved).sum(0)
    predictions = (held_out_kernel @ coefficients).square().sum(0) * (k / len(held_out_kernel))
    own = moved.view(len(kernel) // k, k, -1)[examples, :, torch.arange(len(examples))]
    return weights.clamp(min=0), predictions, own


@dataclass(frozen=True)
class LinearizedNetwork:
    """One seed's linearised network, trained on all examples, or on some of them as a training set of their own.

    On m examples that are left the loss is their mean (and λ/m of the weight decay), as in the paper's released code:
    with the same learning rate and steps, each of fewer examples weighs more. A kernel entry does not depend on other
    examples, so that a part's kernel is a part of the kernel.

    Attributes:
        problem: the training on all n examples.
        kernels: of the examples and the held-out inputs.
    """

    problem: Problem
    kernels: Kernels

    @cached_property
    def initial(self) -> Tensor:
        """f_0 of the examples, [n, k]."""
        return self.problem.outputs(self.problem.x)

    @cached_property
    def initial_held_out(self) -> Tensor:
        """f_0 of the held-out inputs, [m, k]."""
        return self.problem.outputs(self.problem.held_out)

    @cached_property
    def dynamics(self) -> LinearizedDynamics:
        """The training on all examples."""
        return LinearizedDynamics(self.kernels.train, self.initial - self.problem.y, self.problem.descent)

    @cached_property
    def trained(self) -> Tensor:
        """f of the examples once trained on all, [n, k]."""
        return self.dynamics.predictions(self.initial, self.kernels.train)

    def left_out(self, block: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """‖w - w_-i‖², the mean of ‖f(x) - f_-i(x)‖² and f_-i(x_i) [b, k], of a block of examples [b]."""
        weight, prediction, own = self.dynamics.changes(block, self.kernels.held_out)
        return weight, prediction, self.trained[block] - own

    def predictions_from(self, left: Tensor) -> Tensor:
        """Outputs on the held-out inputs, [m, k], after training on the examples at positions `left` alone.

        Raises:
            ValueError: as `LinearizedDynamics`.
        """
        dynamics, held_out = self._part(left, "series")  # products with one vector: no eigendecomposition pays
        return dynamics.predictions(self.initial_held_out, held_out)

    def functional_information(self, left: Tensor, sigma: float) -> Tensor:
        """F-SI in nats of the examples at positions `left` [l] among themselves, [l].

        Raises:
            ValueError: as `LinearizedDynamics`.
        """
        dynamics, held_out = self._part(left, "auto")
        changes = leave_one_out(dynamics, held_out, memory_bytes=self.problem.memory_bytes)
        return functional_information(changes, sigma)

    def _part(self, left: Tensor, method: Method) -> tuple[LinearizedDynamics, Tensor]:
        """The training on what is left, and the kernel of the held-out inputs with it."""
        residual = self.dynamics.residual
        left, k = left.to(residual.device), residual.shape[1]
        rows = (left[:, None] * k + torch.arange(k, device=left.device)).flatten()
        kernel = self.kernels.train[rows[:, None], rows]
        dynamics = LinearizedDynamics(kernel, residual[left], self.problem.descent, method=method)
        return dynamics, self.kernels.held_out[:, rows]
