"""One seed's linearised network: what it predicts once trained on all examples, without some, or on some alone."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from models.tangent.ntk import Kernels
from sample_info.effects import Effects, functional_information
from sample_info.linearized.dynamics import LinearizedDynamics, Method, leave_one_out
from sample_info.training_problem import TrainingProblem


@dataclass(frozen=True)
class LinearizedNetwork:
    """One seed's linearised network, trained on all examples, or on some of them as a training set of their own.

    On m examples that are left the loss is their mean (and λ/m of the weight decay), as in the paper's released code:
    with the same learning rate and steps, each of fewer examples weighs more. A kernel entry does not depend on other
    examples, so that a part's kernel is a part of the kernel.
    """

    problem: TrainingProblem
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

    @cached_property
    def trained_held_out(self) -> Tensor:
        """f of the held-out inputs once trained on all, [m, k]."""
        return self.dynamics.predictions(self.initial_held_out, self.kernels.held_out)

    def left_out(self, block: Tensor) -> tuple[Effects, Tensor]:
        """Return the changes without each of a block of examples [b], and f_-i(x_i), [b, k]."""
        effects, on_themselves = self.dynamics.effects(block, self.kernels.held_out)
        return effects, self.trained[block] - on_themselves

    def all_left_out(self) -> Effects:
        """Return the changes without each of the n examples."""
        blocks = self.dynamics.blocks(self.problem.memory_bytes, len(self.problem.held_out))
        return Effects.joined(self.left_out(block)[0] for block in blocks)

    def thinned(self, removed: int) -> Self:
        """Return the same network trained on the mean of all training sets that lack `removed` of the n examples.

        Each example is weighted by the share of sets that have it. Leaving one out changes this network, to first
        order, by that share of the multilinear extension's slope (Owen 1972): the effect of single examples on
        large sets, where `all_left_out` has their effect on the whole.
        """
        descent, n = self.problem.descent, len(self.problem.x)
        share = (n - removed) / descent.effective_n(n, removed)  # of the loss, and not of the weight decay
        scaled = {"learning_rate": share * descent.learning_rate, "weight_decay": descent.weight_decay / share}
        return replace(self, problem=replace(self.problem, descent=replace(descent, **scaled)))

    def without(self, sets: Tensor) -> Tensor:
        """f_-S of the held-out inputs, [b, m, k], trained without each of `sets` [b, s] of s examples: exact.

        The loss is divided by n - s where `descent.left_out_loss` says so, else by n, as in `differences`.
        """
        m, k = self.trained_held_out.shape
        blocks = self.dynamics.blocks(self.problem.memory_bytes, m, size=sets.shape[1], count=len(sets))
        moved = [(self.kernels.held_out @ self.dynamics.differences(sets[block])).T for block in blocks]
        return self.trained_held_out - torch.cat(moved).view(-1, m, k)

    def predictions_from(self, left: Tensor) -> Tensor:
        """Return outputs on the held-out inputs, [m, k], after training on the examples at positions `left` alone."""
        dynamics, held_out = self._part(left, "series")  # products with one vector: no eigendecomposition pays
        return dynamics.predictions(self.initial_held_out, held_out)

    def functional_information(self, left: Tensor, sigma: float) -> Tensor:
        """F-SI in nats of the examples at positions `left` [l] among themselves, [l]."""
        dynamics, held_out = self._part(left, "auto")
        changes = leave_one_out(dynamics, held_out, memory_bytes=self.problem.memory_bytes)
        return functional_information(changes, sigma)

    def _part(self, left: Tensor, method: Method) -> tuple[LinearizedDynamics, Tensor]:
        """Return the training on what is left, and the kernel of the held-out inputs with it.

        Raises:
            ValueError: as `LinearizedDynamics`.
        """
        residual = self.dynamics.residual
        left, k = left.to(residual.device), residual.shape[1]
        rows = (left[:, None] * k + torch.arange(k, device=left.device)).flatten()
        kernel = self.kernels.train[rows[:, None], rows]
        dynamics = LinearizedDynamics(kernel, residual[left], self.problem.descent, method=method)
        return dynamics, self.kernels.held_out[:, rows]
