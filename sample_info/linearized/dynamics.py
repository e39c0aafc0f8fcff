"""The linearised network's training, and many trainings without some examples (Harutyunyan et al. 2021, section 5)."""

from typing import Literal

import torch
from torch import Tensor

from sample_info.changes import Changes, Effects
from sample_info.linearized.resolvent import ContourRule, Elimination, Resolvent, spectral_bound
from sample_info.linearized.series import ChebyshevSeries, MaskedSeries
from sample_info.linearized.training import LinearizedDescent

Method = Literal["auto", "series", "resolvent"]
Solver = MaskedSeries | Resolvent | Elimination

# An eigendecomposition of [n, n], and what follows it, take as long as products of about this many n³ FLOPs, measured.
_EIGH_FLOPS = 26.0


class LinearizedDynamics:
    """Coefficients a with w(t) = w_0 + ∇f_0(X) a(t), and their change without each example, or without any set.

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
        self._tolerance = tolerance
        self._solver, self.how, self.filter_error = self._choose(self.n, method)
        self._reduced, self._series = self._solver, dict[int, Solver]()
        if descent.finite and (effective_n := descent.effective_n(self.n)) != self.n:
            descent.require_stable(self.largest, effective_n)
            self._reduced, self.how, self.filter_error = self._choose(effective_n, method)
        self.coefficients = -self._solver.full.view(self.n, self.k)

    def predictions(self, initial: Tensor, kernel: Tensor) -> Tensor:
        """f_t(x) = f_0(x) + Θ(x, X) a, of `initial` [m, k] and `kernel` [m k, n k] (equations 11 and 53)."""
        return initial + (kernel @ self.coefficients.flatten()).view_as(initial)

    @property
    def error_bound(self) -> float:
        """Bound on the error of every ‖w - w_-i‖ that comes from approximating φ_t; rounding comes on top."""
        return 2 * self.filter_error * float(self.residual.norm()) * self.largest**0.5

    def differences(self, sets: Tensor) -> Tensor:
        """a - a_-S for each of `sets`, as columns [n k, b]; rows S hold a itself, as a_-S has none.

        Sets are b single examples, [b], or b times s examples that are left out together, [b, s]: exact, too, by
        elimination of their block where t → ∞, else with their rows and columns masked in a series.

        Raises:
            ValueError: the loss is the mean over what is left, and diverges at this learning rate.
        """
        sets = (sets if sets.ndim == 2 else sets[:, None]).to(self.kernel.device)
        reduced = self._without(sets.shape[1])
        found = reduced.differences(sets)
        if self.descent.finite and self.descent.effective_n(self.n, sets.shape[1]) != self.n:
            found += (self._solver.full - reduced.full)[:, None]
        return found.neg_()

    def effects(self, examples: Tensor, held_out_kernel: Tensor) -> tuple[Effects, Tensor]:
        """What leaving out each of `examples` [b] changes, by the kernel [m k, n k] of m held-out inputs with all.

        And f(x_i) - f_-i(x_i) of these examples themselves, [b, k].
        """
        coefficients = self.differences(examples)
        rows = self.kernel.view(self.n, self.k, -1)[examples]
        own = torch.einsum("bkr,rb->bk", rows, coefficients)
        return Effects.along(coefficients, self.kernel, held_out_kernel, self.k), own

    def blocks(
        self, memory_bytes: float, held_out: int = 0, *, size: int = 1, count: int | None = None
    ) -> list[Tensor]:
        """Positions of the n examples, or of `count` sets, in blocks whose effects fit into so much memory.

        At least one in each. Effects are on so many `held_out` inputs, sets of `size` examples.
        """
        solver = self._without(size) if size > 1 else self._reduced
        each = solver.bytes_per_set(size) + 8 * (4 * len(self.kernel) + 4 * held_out * self.k)
        return list(torch.arange(count or self.n).split(max(1, int(memory_bytes // each))))

    def _without(self, size: int) -> Solver:
        """The solver without sets of so many examples: of one, that of the scores; of more, one without R_SS."""
        if size == 1 or not self.descent.finite:
            return self._reduced
        effective_n = self.descent.effective_n(self.n, size)
        if effective_n not in self._series:
            self.descent.require_stable(self.largest, effective_n)
            self._series[effective_n] = self._choose(effective_n, "series")[0]
        return self._series[effective_n]

    def _choose(self, n: int, method: Method) -> tuple[Solver, str, float]:
        """The solver of a training whose loss is the mean over n, what it is in words, and its `filter_error`."""
        low = self.descent.weight_decay
        if not self.descent.finite:
            return Elimination(self.kernel, self.residual, low), "block elimination", 0.0

        def filter_(s: Tensor) -> Tensor:
            return self.descent.filter(s, n)

        if method != "resolvent":
            series = ChebyshevSeries.fit(filter_, low, low + self.largest, self._tolerance)
            if method == "series" or 2 * series.degree * self.n < _EIGH_FLOPS * len(self.kernel):
                how = f"Chebyshev series of degree {series.degree}"
                return MaskedSeries(self.kernel, self.residual, series), how, series.truncation
        rule = ContourRule.fit(filter_, low, low + self.largest, self._tolerance)
        return Resolvent(self.kernel, self.residual, low, rule), f"resolvents at {len(rule.nodes)} nodes", rule.error


def leave_one_out(dynamics: LinearizedDynamics, held_out_kernel: Tensor, *, memory_bytes: float = 2**30) -> Changes:
    """What leaving out each example changes in the linearised network, in column blocks that fit into memory."""
    found = [
        dynamics.effects(block, held_out_kernel)[0]
        for block in dynamics.blocks(memory_bytes, len(held_out_kernel) // dynamics.k)
    ]
    return Changes(torch.cat([one.weight for one in found]), torch.cat([one.prediction for one in found]))
