"""Brittleness: how many of its most helpful examples must go before a retrained network decides otherwise.

Ilyas et al. 2022, section 4.1 ("data support"), by real trainings; as many at a time as memory holds.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from harness.results.table import Table
from sample_info.references.truth import retrained_stacks
from sample_info.subgroups import decisions
from sample_info.training_problem import TrainingProblem

SHARES = (0.02, 0.04, 0.08, 0.16, 0.32)


def chosen(outputs: Tensor, labels: Tensor, count: int) -> Tensor:
    """Return a seeded random sample of the held-out inputs that outputs [m, 1] decide rightly, ascending."""
    right = (decisions(outputs) == labels).nonzero().squeeze(1)
    order = torch.randperm(len(right), generator=torch.Generator().manual_seed(0))
    return right[order[:count]].sort().values


def flips(
    problem: TrainingProblem,
    outputs: Tensor,
    methods: Mapping[str, Tensor],
    inputs: Tensor,
    shares: Sequence[float] = SHARES,
) -> dict[str, list[float | None]]:
    """For each method, the share of the examples without which each of `inputs` [q] is decided otherwise.

    What goes is what by the method does most for the present decision. Shares are bisected: the next smaller one does
    not flip the decision; None where the largest does not.

    Args:
        problem: the training.
        outputs: of the trained network on the held-out inputs, [m, 1].
        methods: effects f(x) - f_-i(x) by name, [n, m].
        inputs: positions among the held-out inputs.
        shares: ascending.
    """
    n, now = len(problem.x), decisions(outputs[inputs])
    helpful = {name: ((2 * now - 1) * one[:, inputs]).T.argsort(descending=True) for name, one in methods.items()}
    between = {(name, q): (0, len(shares)) for name in methods for q in range(len(inputs))}  # positions of the answer
    while left := {key: (low + high) // 2 for key, (low, high) in between.items() if low < high}:
        tried = max(left.values(), key=list(left.values()).count)  # the most at once
        keys = [key for key, middle in left.items() if middle == tried]
        sets = torch.stack([helpful[name][q, : round(shares[tried] * n)] for name, q in keys])
        without = outputs[inputs] - _moved(problem, inputs, sets)
        for (name, q), found in zip(keys, without, strict=True):
            low, high = between[name, q]
            between[name, q] = (low, tried) if decisions(found)[q] != now[q] else (tried + 1, high)
    smallest = [*shares, None]
    return {name: [smallest[between[name, q][0]] for q in range(len(inputs))] for name in methods}


def tabulated(found: Mapping[str, Sequence[float | None]]) -> Table:
    """Count held-out inputs that are decided otherwise without the most helpful examples, by how many are removed."""
    rows = [
        [name, *(str(sum(s is not None and s <= share for s in one)) for share in SHARES)]
        for name, one in found.items()
    ]
    count = len(next(iter(found.values())))
    title = f"of {count} held-out inputs, decided otherwise without the most helpful"
    return Table("brittleness", "", ["method", *(f"{share:.0%}" for share in SHARES)], rows, title=title)


def _moved(problem: TrainingProblem, inputs: Tensor, sets: Tensor) -> Tensor:
    """f(x) - f_-S(x) of some held-out inputs without each of `sets` [b, s], [b, q, 1]."""
    effective_n = problem.descent.effective_n(len(problem.x), sets.shape[1])
    training, memory_bytes = problem.training, int(problem.memory_bytes)
    stacks = retrained_stacks(
        training, problem.held_out[inputs], sets, effective_n=effective_n, memory_bytes=memory_bytes
    )
    return torch.cat([stack.outputs for stack in stacks])
