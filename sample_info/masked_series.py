"""All leave-one-out systems as columns of one matrix: a Chebyshev series of the masked kernel.

Training without example i is training with rows and columns i of the kernel masked, and t steps of it are a polynomial
in the masked kernel. A term costs all systems one product with the kernel, and a few dozen terms do the work of
thousands of steps.
"""

import torch
from torch import Tensor

from sample_info.chebyshev import ChebyshevSeries


class MaskedSeries:
    """f(A) r and its change without each example, for A = Θ + λI.

    Args:
        kernel: Θ, [n k, n k] float64.
        residual: r, [n, k].
        series: of f on [λ, λ + σ], σ a bound on the spectrum of Θ.
    """

    def __init__(self, kernel: Tensor, residual: Tensor, series: ChebyshevSeries) -> None:
        self._kernel, self._shape = kernel, residual.shape
        self._scale = 2 / (series.high - series.low)  # Θ + λI is mapped to scale · Θ - I
        self._coefficients = series.coefficients
        self._terms = self._full_terms(residual)
        self.full = series.coefficients.to(kernel) @ self._terms  # f(A) r, [n k]

    @property
    def bytes_per_example(self) -> int:
        """Memory that `differences` takes for each example."""
        return 4 * 8 * len(self._kernel)

    def differences(self, examples: Tensor) -> Tensor:
        """f(A) r - f(A_-i) r_-i for each of the `examples` [b], as columns [n k, b].

        They are Σ c_j e_j with e_j = T_j(A) r - T_j(MAM) M r. Off the masked rows e_j obeys the recurrence of T_j; on
        them the masked term is zero, and e_j is the full one. So nothing is subtracted that nearly cancels.
        """
        columns = torch.arange(len(examples), device=examples.device)

        def unmask(term: Tensor, j: int) -> Tensor:
            term.view(*self._shape, -1)[examples, :, columns] = self._terms[j].view(self._shape)[examples]
            return term

        now, before = unmask(self._kernel.new_zeros(len(self._kernel), len(examples)), 0), None
        weights = self._coefficients.tolist()
        total = weights[0] * now
        for j in range(1, len(weights)):
            now, before = unmask(self._step(now, before), j), now
            total.add_(now, alpha=weights[j])
        return total

    def _step(self, now: Tensor, before: Tensor | None) -> Tensor:
        """T_{j+1} from T_j and T_{j-1}, times a vector or columns, in `before`'s memory; T_1 without it."""
        if before is None:
            return torch.addmm(now, self._kernel, now, beta=-1, alpha=self._scale)
        return before.addmm_(self._kernel, now, beta=-1, alpha=2 * self._scale).sub_(now, alpha=2)

    def _full_terms(self, residual: Tensor) -> Tensor:
        """T_j(A) r for every term, [degree + 1, n k]."""
        now, before = residual.reshape(-1, 1).clone(), None
        terms = [now.squeeze(1).clone()]
        for _ in range(len(self._coefficients) - 1):
            now, before = self._step(now, before), now
            terms.append(now.squeeze(1).clone())
        return torch.stack(terms)
