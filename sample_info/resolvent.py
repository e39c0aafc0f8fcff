"""All leave-one-out systems from one eigendecomposition, whatever t: block elimination under Cauchy's integral.

For each z the resolvent R = (z - A)⁻¹ of A = Θ + λI loses an example by elimination of a block: R r changes by
R_{·i} R_ii⁻¹ (R r)_i. In the eigenbasis R is diagonal, so that a node of the contour costs O(n²) for all n systems;
steps, however many, only show in the nodes' weights.
"""

import torch
from torch import Tensor

from sample_info.contour import ContourRule


class Resolvent:
    """f(A) r and its change without each example, for A = Θ + λI.

    Args:
        kernel: Θ, [n k, n k] float64.
        residual: r, [n, k].
        shift: λ.
        rule: of f on an interval that holds the spectrum of A.
    """

    def __init__(self, kernel: Tensor, residual: Tensor, shift: float, rule: ContourRule) -> None:
        self._n, self._k = residual.shape
        values, self._vectors = torch.linalg.eigh(kernel)
        self._gaps = 1 / (rule.nodes.to(kernel.device)[None] - (values.clamp(min=0) + shift)[:, None])  # [n k, q]
        self._weights = rule.weights.to(kernel.device)
        rotated = self._vectors.T @ residual.flatten()
        self.full = self._vectors @ (rotated * 2 * (self._gaps @ self._weights).real)  # f(A) r, [n k]
        self._solutions = (self._times(self._vectors, self._gaps * rotated[:, None])).view(self._n, self._k, -1)

    @property
    def bytes_per_example(self) -> int:
        """Memory that `differences` takes for each example."""
        k, (rows, q) = self._k, self._gaps.shape
        return 8 * ((k * k + k + 8) * rows + 4 * (k * k + 2 * k) * q)

    def differences(self, examples: Tensor) -> Tensor:
        """f(A) r - f(A_-i) r_-i for each of the `examples` [b], as columns [n k, b]."""
        b, k = len(examples), self._k
        rows = self._vectors.view(self._n, k, -1)[examples]  # [b, k, n k]
        pairs = (rows[:, :, None] * rows[:, None]).flatten(0, 2)
        blocks = self._times(pairs, self._gaps).view(b, k, k, -1).permute(0, 3, 1, 2)  # R_ii at every node
        forces = torch.linalg.solve(blocks, self._solutions[examples].transpose(1, 2))  # [b, q, k]
        forces = 2 * self._weights[:, None] * forces
        rotated = rows.new_zeros(len(self._vectors), b)
        for c in range(k):
            rotated.addcmul_(rows[:, c].T, (self._gaps @ forces[..., c].T).real)
        return self._vectors @ rotated

    @staticmethod
    def _times(real: Tensor, complex_: Tensor) -> Tensor:
        return torch.complex(real @ complex_.real, real @ complex_.imag)
