"""The linearised network's training, and all n leave-one-out trainings at once (Harutyunyan et al. 2021, section 5)."""

from typing import Literal

import torch
from torch import Tensor

from sample_info.changes import Changes
from sample_info.linearized.resolvent import ContourRule, Elimination, Resolvent, spectral_bound
from sample_info.linearized.series import ChebyshevSeries, MaskedSeries
from sample_info.linearized.training import LinearizedDescent

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
        """f_t(x) = f_0(x) + Θ(x, X) a, [m, k] (equations 11 and 53).

        Args:
            initial: f_0(x), [m, k].
            kernel: Θ(x, X), [m k, n k]; that of the training inputs gives training predictions.
        """
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
        """What leaving each of the `examples` [b] out changes.

        Args:
            examples: indices [b].
            held_out_kernel: Θ(x, X), [m k, n k], of m held-out inputs.

        Returns:
            ‖w - w_-i‖² and the mean over held-out inputs of ‖f(x) - f_-i(x)‖², both [b]; and of the example itself
            f(x_i) - f_-i(x_i), [b, k].
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
    """What each of b movements of the weights ∇f(X) a changes, as `LinearizedDynamics.changes` returns it.

    Args:
        coefficients: a as columns, [n k, b].
        kernel: Θ, [n k, n k].
        held_out_kernel: Θ(x, X), [m k, n k].
        examples: whose outputs are wanted of each movement, [b].
        k: outputs.
    """
    moved = kernel @ coefficients
    weights = (coefficients * moved).sum(0)
    predictions = (held_out_kernel @ coefficients).square().sum(0) * (k / len(held_out_kernel))
    own = moved.view(len(kernel) // k, k, -1)[examples, :, torch.arange(len(examples))]
    return weights.clamp(min=0), predictions, own
