"""The references that scores can be compared with: `sample_info.references`, names to functions of a problem.

They train or differentiate the network itself, not its linearisation, from the same weights and with the same steps.
"""

import math

import torch
from torch import Tensor

from sample_info.comparison import Reference
from sample_info.curvature import SquaredLoss
from sample_info.descent import GradientDescent
from sample_info.influence import influence
from sample_info.leave_one_out import LeaveOneOut, examples_to_leave_out
from sample_info.problem import Problem
from sample_info.retraining import retrain_without_each
from sample_info.scores import Changes
from sample_info.solvers import ConjugateGradients


def by_retraining(problem: Problem) -> Changes:
    """Train without each example (or without each of a sample of them), by brute force."""
    found = retrain_without_each(
        gradient_descent(problem), problem.held_out, _examples(problem), memory_bytes=int(problem.memory_bytes)
    )
    return _changes(found, len(problem.x))


def by_influence(problem: Problem) -> Changes:
    """Influence functions at the weights where training ends, by conjugate gradients on the Gauss-Newton matrix."""
    descent = gradient_descent(problem)
    change = descent.train(torch.ones(1, len(problem.x)))
    trained = {name: descent.initial[name] + moved[0] for name, moved in change.items()}
    loss = SquaredLoss(descent.network, trained, descent.x, descent.y)
    found = influence(
        loss,
        problem.held_out,
        ConjugateGradients(),
        _examples(problem),
        weight_decay=descent.weight_decay,
        memory_bytes=int(problem.memory_bytes),
    )
    return _changes(found, len(problem.x))


def gradient_descent(problem: Problem) -> GradientDescent:
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


REFERENCES: dict[str, Reference] = {"retraining": by_retraining, "influence": by_influence}


def _examples(problem: Problem) -> Tensor:
    n = len(problem.x)
    return examples_to_leave_out(n, None if problem.left_out is None else min(n, problem.left_out))


def _changes(found: LeaveOneOut, n: int) -> Changes:
    """[n] each, NaN for examples that were not left out."""
    weight, prediction = (torch.full((n,), math.nan, dtype=torch.float64) for _ in range(2))
    weight[found.examples], prediction[found.examples] = found.weight_change, found.prediction_change
    return Changes(weight, prediction)
