"""The network itself, trained on some of the examples by gradient descent: many parts at once."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from sample_info.descent import GradientDescent
from sample_info.problem import Problem
from sample_info.retraining import members_at_once, predictions
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
