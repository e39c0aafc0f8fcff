"""The references that scores can be compared with: `sample_info.references`, names to functions of a problem.

They train or differentiate the network itself, not its linearisation, from the same weights and with the same steps,
and yield what they find a few examples at a time.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from sample_info.comparison import Reference
from sample_info.curvature import SquaredLoss
from sample_info.descent import GradientDescent
from sample_info.influence import influence
from sample_info.leave_one_out import LeaveOneOut
from sample_info.problem import Problem
from sample_info.retraining import retrained_stacks
from sample_info.solvers import ConjugateGradients


def by_retraining(problem: Problem, examples: Tensor) -> Iterator[LeaveOneOut]:
    """Train without each of the examples, by brute force."""
    return retrained_stacks(_descent(problem), problem.held_out, examples, memory_bytes=int(problem.memory_bytes))


def by_influence(problem: Problem, examples: Tensor) -> Iterator[LeaveOneOut]:
    """Influence functions at the weights where training ends, by conjugate gradients on the Gauss-Newton matrix."""
    descent = _descent(problem)
    change = descent.train(torch.ones(1, len(problem.x)))
    trained = {name: descent.initial[name] + moved[0] for name, moved in change.items()}
    loss = SquaredLoss(descent.network, trained, descent.x, descent.y)
    yield influence(
        loss,
        problem.held_out,
        ConjugateGradients(),
        examples,
        weight_decay=descent.weight_decay,
        memory_bytes=int(problem.memory_bytes),
    )


REFERENCES: dict[str, Reference] = {"retraining": by_retraining, "influence": by_influence}


def _descent(problem: Problem) -> GradientDescent:
    """The problem's training; its learning rate is of the mean loss, `GradientDescent`'s of the sum."""
    linearized = problem.descent
    return GradientDescent.of(
        problem.model,
        dict(problem.weights),
        problem.x,
        problem.y.to(problem.x.dtype),
        steps=int(linearized.steps),
        learning_rate=linearized.learning_rate / len(problem.x),
        weight_decay=linearized.weight_decay,
    )
