"""Predictions of one seed's linearised network after training on all examples or on subsets."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from models.tangent.kernel import Kernels
from sample_info.leave_one_out_effects import Effects, functional_information
from sample_info.linearized.dynamics import LinearizedDynamics, Method, leave_one_out
from sample_info.training_problem import TrainingProblem


@dataclass(frozen=True)
class LinearizedNetwork:
    """One seed's linearised network, trained on all examples or on a subset.

    On a subset of m examples the loss is the mean over them, with weight decay λ/m, as in the paper's released code.
    The kernel of a subset is a submatrix of the whole kernel.
    """

    problem: TrainingProblem
    kernels: Kernels

    @cached_property
    def initial(self) -> Tensor:
        """Outputs f_0 on the training examples, [n, k]."""
        return self.problem.outputs(self.problem.x)

    @cached_property
    def initial_held_out(self) -> Tensor:
        """Outputs f_0 on the held-out inputs, [m, k]."""
        return self.problem.outputs(self.problem.held_out)

    @cached_property
    def dynamics(self) -> LinearizedDynamics:
        """The training on all examples."""
        return LinearizedDynamics(self.kernels.train, self.initial - self.problem.y, self.problem.descent)

    @cached_property
    def trained(self) -> Tensor:
        """Outputs on the training examples after training on all, [n, k]."""
        return self.dynamics.predictions(self.initial, self.kernels.train)

    @cached_property
    def trained_held_out(self) -> Tensor:
        """Outputs on the held-out inputs after training on all examples, [m, k]."""
        return self.dynamics.predictions(self.initial_held_out, self.kernels.held_out)

    def blocks(self) -> list[Tensor]:
        """Split the positions of the n examples into blocks whose effects fit into memory."""
        return self.dynamics.blocks(self.problem.memory_bytes, len(self.problem.held_out))

    def left_out(self, block: Tensor) -> tuple[Effects, Tensor]:
        """Return the effects of leaving out each example i of a block [b], and f_-i(x_i), [b, k]."""
        effects, on_themselves = self.dynamics.effects(block, self.kernels.held_out)
        return effects, self.trained[block] - on_themselves

    def all_left_out(self) -> Effects:
        """Return the effects of leaving out each of the n examples."""
        return Effects.joined(self.left_out(block)[0] for block in self.blocks())

    def thinned(self, removed: int) -> Self:
        """Return the network with the mean weight of each example over subsets that lack `removed` of n examples.

        To first order, its leave-one-out effects are the slopes of the multilinear extension (Owen 1972), multiplied by
        this weight. They approximate effects of single examples on subsets instead of the whole training set.
        """
        descent, n = self.problem.descent, len(self.problem.x)
        fraction = (n - removed) / n  # weight of the loss, not of the weight decay
        scaled = {"learning_rate": fraction * descent.learning_rate, "weight_decay": descent.weight_decay / fraction}
        return replace(self, problem=replace(self.problem, descent=replace(descent, **scaled)))

    def without(self, sets: Tensor) -> Tensor:
        """Return f_-S on the held-out inputs, [b, m, k], after training without each of `sets` [b, s]; exact."""
        m, k = self.trained_held_out.shape
        blocks = self.dynamics.blocks(self.problem.memory_bytes, m, size=sets.shape[1], count=len(sets))
        moved = [(self.kernels.held_out @ self.dynamics.differences(sets[block])).T for block in blocks]
        return self.trained_held_out - torch.cat(moved).view(-1, m, k)

    def predictions_from(self, left: Tensor) -> Tensor:
        """Return outputs on the held-out inputs, [m, k], after training on the examples at positions `left` only."""
        dynamics, held_out = self._part(left, "series")  # one right-hand side: cheaper than an eigendecomposition
        return dynamics.predictions(self.initial_held_out, held_out)

    def functional_information(self, left: Tensor, sigma: float) -> Tensor:
        """Return F-SI in nats, [l], of the examples at positions `left` [l], with these as the whole training set."""
        dynamics, held_out = self._part(left, "auto")
        changes = leave_one_out(dynamics, held_out, memory_bytes=self.problem.memory_bytes)
        return functional_information(changes, sigma)

    def _part(self, left: Tensor, method: Method) -> tuple[LinearizedDynamics, Tensor]:
        """Return the training on the examples `left`, and the kernel between them and the held-out inputs.

        Raises:
            ValueError: raised by `LinearizedDynamics`.
        """
        residual = self.dynamics.residual
        left, k = left.to(residual.device), residual.shape[1]
        rows = (left[:, None] * k + torch.arange(k, device=left.device)).flatten()
        kernel = self.kernels.train[rows[:, None], rows]
        dynamics = LinearizedDynamics(kernel, residual[left], self.problem.descent, method=method)
        return dynamics, self.kernels.held_out[:, rows]
