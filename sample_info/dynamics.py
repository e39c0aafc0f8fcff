"""The linearised network's training, and all n leave-one-out trainings at once (Harutyunyan et al. 2021, section 5).

Training without example i is training with rows and columns i of the kernel masked. The systems are the columns of one
matrix, so that a step of all of them is one product with the kernel; and t steps are a polynomial in the masked kernel,
whose Chebyshev series has a few dozen terms where t has thousands.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from sample_info.chebyshev import ChebyshevSeries
from sample_info.descent import GradientDescent
from sample_info.spectrum import inverse, spectral_bound


class LinearizedDynamics:
    """Coefficients a with w(t) = w_0 + ∇f_0(X) a(t), and their change without each example.

    a(t) = -φ_t(Θ + λI) (f_0(X) - Y): equations 10 and 50, with the sign that 50's derivation gives. Weights are
    `jacobian.weights_after`, predictions are `predictions`.

    Differences a - a_-i are propagated themselves, rather than subtracted at the end: the scores of examples that
    hardly matter keep their digits.

    Args:
        kernel: Θ, [n k, n k] float64, rows and columns ordered by example, then output.
        residual: f_0(X) - Y, [n, k] float64.
        descent: the training.
        tolerance: of the Chebyshev series, relative to the filter's largest value.

    Attributes:
        coefficients: a, [n, k].
        degree: of the Chebyshev series; 0 as t → ∞, where there is none.

    Raises:
        ValueError: shapes that do not fit, a learning rate at which training diverges, or t → ∞ without weight decay
            on a singular kernel.
    """

    def __init__(self, kernel: Tensor, residual: Tensor, descent: GradientDescent, *, tolerance: float = 1e-14) -> None:
        self.n, self.k = residual.shape
        if kernel.shape != (residual.numel(), residual.numel()):
            raise ValueError(
                f"kernel {list(kernel.shape)} and residual {list(residual.shape)} do not fit: "
                f"{self.n} examples of {self.k} outputs need a kernel of {residual.numel()} rows and columns"
            )
        self.kernel, self.residual, self.descent = kernel, residual, descent
        self.largest = spectral_bound(kernel)
        descent.require_stable(self.largest, self.n)
        self.degree = 0
        if descent.finite:
            self._series = self._fit(tolerance)
            self.degree = self._series.degree
            self._terms = self._full_terms()
            self.coefficients = -(self._series.coefficients.to(kernel) @ self._terms).view(self.n, self.k)
        else:
            self._inverse = inverse(kernel, descent.weight_decay)
            self.coefficients = -(self._inverse @ residual.flatten()).view(self.n, self.k)

    def predictions(self, initial: Tensor, kernel: Tensor) -> Tensor:
        """f_t(x) = f_0(x) + Θ(x, X) a, [m, k] (equations 11 and 53).

        Args:
            initial: f_0(x), [m, k].
            kernel: Θ(x, X), [m k, n k]; that of the training inputs gives training predictions.
        """
        return initial + (kernel @ self.coefficients.flatten()).view_as(initial)

    @property
    def truncation(self) -> float:
        """Bound on ‖a - a_-i‖'s error by leaving off the series: twice the coefficients left out times ‖f_0(X) - Y‖."""
        return 2 * self._series.truncation * float(self.residual.norm()) if self.descent.finite else 0.0

    def differences(self, examples: Tensor) -> Tensor:
        """a - a_-i for each of the `examples` [b], as columns [n k, b]; rows i hold a itself, as a_-i has none."""
        examples = examples.to(self.kernel.device)
        return self._masked_series(examples) if self.descent.finite else self._eliminated(examples)

    def changes(self, examples: Tensor, held_out_kernel: Tensor) -> tuple[Tensor, Tensor]:
        """What leaving each of the `examples` [b] out changes.

        Args:
            examples: indices [b].
            held_out_kernel: Θ(x, X), [m k, n k], of m held-out inputs.

        Returns:
            ‖w - w_-i‖² and the mean over held-out inputs of ‖f(x) - f_-i(x)‖², both [b].
        """
        d = self.differences(examples)
        weights = (d * (self.kernel @ d)).sum(0)
        predictions = (held_out_kernel @ d).square().sum(0) * (self.k / len(held_out_kernel))
        return weights.clamp(min=0), predictions

    def _fit(self, tolerance: float) -> ChebyshevSeries:
        low = self.descent.weight_decay
        return ChebyshevSeries.fit(lambda s: self.descent.filter(s, self.n), low, low + self.largest, tolerance)

    def _step(self, now: Tensor, before: Tensor | None) -> Tensor:
        """T_{j+1} from T_j and T_{j-1}, all times a vector or columns; in `before`'s memory. T_1 without it."""
        scale = 2 / self.largest  # maps [λ, λ + largest] to [-1, 1]
        if before is None:
            return torch.addmm(now, self.kernel, now, beta=-1, alpha=scale)
        return before.addmm_(self.kernel, now, beta=-1, alpha=2 * scale).sub_(now, alpha=2)

    def _full_terms(self) -> Tensor:
        """T_j(Θ + λI) (f_0(X) - Y) for every term, [degree + 1, n k]."""
        now, before = self.residual.reshape(-1, 1), None
        terms = [now.squeeze(1).clone()]
        for _ in range(self._series.degree):
            now, before = self._step(now, before), now.clone() if before is None else now
            terms.append(now.squeeze(1).clone())
        return torch.stack(terms)

    def _masked_series(self, examples: Tensor) -> Tensor:
        """Σ c_j e_j with e_j = T_j(Θ) r - T_j(MΘM) M r.

        Off the masked rows e_j obeys the recurrence of T_j; on them the masked term is zero, and e_j is the full one.
        """
        columns = torch.arange(len(examples), device=examples.device)

        def unmask(term: Tensor, j: int) -> Tensor:
            term.view(self.n, self.k, -1)[examples, :, columns] = self._terms[j].view(self.n, self.k)[examples]
            return term

        now, before = unmask(self.kernel.new_zeros(len(self.kernel), len(examples)), 0), None
        weights = self._series.coefficients.tolist()
        total = -weights[0] * now
        for j in range(1, len(weights)):
            now, before = unmask(self._step(now, before), j), now
            total.sub_(now, alpha=weights[j])
        return total

    def _eliminated(self, examples: Tensor) -> Tensor:
        """t → ∞: B_{·i} B_ii⁻¹ a_i with B = (Θ + λI)⁻¹, a block elimination (appendix E in one line)."""
        n, k = self.n, self.k
        blocks = self._inverse.view(n, k, n, k)[examples, :, examples]  # [b, k, k]
        solved = torch.linalg.solve(blocks, self.coefficients[examples])
        return torch.einsum("rbk,bk->rb", self._inverse.view(n * k, n, k)[:, examples], solved)


def column_blocks(n: int, rows: int, memory_bytes: float) -> Iterator[Tensor]:
    """Indices 0..n-1 in blocks for which four float64 matrices of `rows` rows fit into `memory_bytes`."""
    return iter(torch.arange(n).split(max(1, int(memory_bytes // (4 * 8 * rows)))))
