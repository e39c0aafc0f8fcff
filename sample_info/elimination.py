"""All leave-one-out systems as t → ∞, from one inverse."""

import torch
from torch import Tensor

from sample_info.spectrum import inverse


class Elimination:
    """A⁻¹ r and its change without each example, for A = Θ + λI: B_{·i} B_ii⁻¹ (B r)_i with B = A⁻¹ (appendix E).

    Args:
        kernel: Θ, [n k, n k] float64.
        residual: r, [n, k].
        shift: λ.

    Raises:
        ValueError: A is singular.
    """

    def __init__(self, kernel: Tensor, residual: Tensor, shift: float) -> None:
        self._n, self._k = residual.shape
        self._inverse = inverse(kernel, shift)
        self.full = self._inverse @ residual.flatten()

    @property
    def bytes_per_example(self) -> int:
        """Memory that `differences` takes for each example."""
        return 8 * (self._k + 2) * len(self._inverse)

    def differences(self, examples: Tensor) -> Tensor:
        """A⁻¹ r - A_-i⁻¹ r_-i for each of the `examples` [b], as columns [n k, b]."""
        n, k = self._n, self._k
        blocks = self._inverse.view(n, k, n, k)[examples, :, examples]  # [b, k, k]
        solved = torch.linalg.solve(blocks, self.full.view(n, k)[examples])
        return torch.einsum("rbk,bk->rb", self._inverse.view(n * k, n, k)[:, examples], solved)
