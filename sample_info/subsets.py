"""The linearised network trained on some of the examples: everything from the kernel of all of them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sample_info.dynamics import LinearizedDynamics, Method
from sample_info.linearized_descent import LinearizedDescent
from sample_info.ntk import Kernels
from sample_info.scores import functional_information, leave_one_out


@dataclass(frozen=True)
class Subsets:
    """Trainings of the linearised network on parts of a training set, each a training set of its own.

    The loss is the mean over the examples that are left (and λ/m of the weight decay), as in the paper's released
    code: with the same learning rate and steps, each of fewer examples weighs more. A kernel entry does not depend
    on other examples, so that a part's kernel is a part of the kernel.

    Attributes:
        kernels: of all n examples and the held-out inputs.
        residual: f_0(X) - Y, [n, k].
        initial_held_out: f_0 of the held-out inputs, [m, k].
        descent: the training.
    """

    kernels: Kernels
    residual: Tensor
    initial_held_out: Tensor
    descent: LinearizedDescent

    def predictions(self, left: Tensor) -> Tensor:
        """Outputs on the held-out inputs, [m, k], after training on the examples at positions `left` alone.

        Raises:
            ValueError: as `LinearizedDynamics`.
        """
        dynamics, held_out = self._training(left, "series")  # products with one vector: no eigendecomposition pays
        return dynamics.predictions(self.initial_held_out, held_out)

    def functional_information(self, left: Tensor, sigma: float, *, memory_bytes: float = 2**30) -> Tensor:
        """F-SI in nats of the examples at positions `left` [l] among themselves, [l].

        Raises:
            ValueError: as `LinearizedDynamics`.
        """
        dynamics, held_out = self._training(left, "auto")
        return functional_information(leave_one_out(dynamics, held_out, memory_bytes=memory_bytes), sigma)

    def _training(self, left: Tensor, method: Method) -> tuple[LinearizedDynamics, Tensor]:
        """The training, and the kernel of the held-out inputs with what is left."""
        left, k = left.to(self.residual.device), self.residual.shape[1]
        rows = (left[:, None] * k + torch.arange(k, device=left.device)).flatten()
        kernel = self.kernels.train[rows[:, None], rows]
        dynamics = LinearizedDynamics(kernel, self.residual[left], self.descent, method=method)
        return dynamics, self.kernels.held_out[:, rows]
