"""Networks that have seen only some of the examples: linearised, in closed form, or trained."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sample_info.changes import functional_information, leave_one_out
from sample_info.kernel.ntk import Kernels
from sample_info.linearized.dynamics import LinearizedDynamics, Method
from sample_info.linearized.training import LinearizedDescent
from sample_info.problem import Problem
from sample_info.references.gradient_descent import GradientDescent
from sample_info.references.retraining import members_at_once, predictions
from train.memory import keep_freed_memory


def train_on_each(problem: Problem, left: Tensor, progress: Callable[[float], None] = lambda _: None) -> Tensor:
    """Outputs on the held-out inputs, [S, m, k], of trainings from the same weights on S parts of the examples.

    The loss is the mean over a part, as in `Subsets`.

    Args:
        problem: the training on all n.
        left: which examples each part has, as many in each; [S, n] bool.
        progress: called with the share that is done.

    Raises:
        ValueError: parts of different sizes, or less memory than one training needs.
        DivergedError: the learning rate is too large.
    """
    sizes = left.sum(1).unique().tolist()
    if len(sizes) != 1:
        raise ValueError(f"parts of {sizes} examples: those that are trained together must be of one size")
    keep_freed_memory()
    descent = replace(problem.training, learning_rate=problem.descent.learning_rate / sizes[0])
    outputs: list[Tensor] = []
    for some in left.to(problem.x.device).split(members_at_once(descent, int(problem.memory_bytes))):
        begun = sum(map(len, outputs))

        def done(step: int, begun: int = begun, members: int = len(some)) -> None:
            progress((begun + members * step / descent.steps) / len(left))

        change = _without_unused(descent, some).train(some[:, some.any(0)], done)
        outputs.append(predictions(descent, change, problem.held_out))
    return torch.cat(outputs)


def _without_unused(descent: GradientDescent, left: Tensor) -> GradientDescent:
    """The same, without examples that are in none of the parts [S, n]."""
    used = left.any(0)
    return replace(descent, x=descent.x[used], y=descent.y[used])


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
