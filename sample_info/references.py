"""The references that scores can be compared with: `sample_info.references`, names to functions of a problem.

They train or differentiate the network itself, not its linearisation, from the same weights and with the same steps,
and yield what they find a few examples at a time.
"""

from collections.abc import Iterator

from torch import Tensor

from sample_info.comparison import Reference
from sample_info.curvature import SquaredLoss
from sample_info.influence import influence_parts
from sample_info.leave_one_out import LeaveOneOut
from sample_info.problem import Problem
from sample_info.retraining import retrained_stacks
from sample_info.solvers import ConjugateGradients


def by_retraining(problem: Problem, examples: Tensor) -> Iterator[LeaveOneOut]:
    """Train without each of the examples, by brute force."""
    return retrained_stacks(problem.training, problem.held_out, examples, memory_bytes=int(problem.memory_bytes))


def by_influence(problem: Problem, examples: Tensor) -> Iterator[LeaveOneOut]:
    """Influence functions at the weights where training ends, by conjugate gradients on the Gauss-Newton matrix."""
    descent = problem.training
    loss = SquaredLoss(descent.network, descent.trained(), descent.x, descent.y)
    return influence_parts(
        loss,
        problem.held_out,
        ConjugateGradients(),
        examples,
        weight_decay=descent.weight_decay,
        memory_bytes=int(problem.memory_bytes),
    )


REFERENCES: dict[str, Reference] = {"retraining": by_retraining, "influence": by_influence}
