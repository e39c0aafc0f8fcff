"""How many of its most helpful examples must go before a network that is trained again decides otherwise.

Ilyas et al. 2022, section 4.1 ("data support"), by real trainings; as many at a time as memory holds.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from sample_info.kinds import decisions
from sample_info.problem import Problem
from sample_info.references.truth import retrained_stacks

SHARES = (0.02, 0.04, 0.08, 0.16, 0.32)


def chosen(outputs: Tensor, labels: Tensor, count: int) -> Tensor:
    """A seeded random sample of the held-out inputs that outputs [m, 1] decide rightly, ascending."""
    right = (decisions(outputs) == labels).nonzero().squeeze(1)
    order = torch.randperm(len(right), generator=torch.Generator().manual_seed(0))
    return right[order[:count]].sort().values


def flips(
    problem: Problem,
    outputs: Tensor,
    accounts: Mapping[str, Tensor],
    inputs: Tensor,
    shares: Sequence[float] = SHARES,
) -> dict[str, list[float | None]]:
    """For each account, the smallest share of the examples without which each of `inputs` [q] is decided otherwise.

    What goes is what by the account does most for the present decision. Shares are tried in turn, each for those inputs
    that no smaller one has flipped; None where none has.

    Args:
        problem: the training.
        outputs: of the trained network on the held-out inputs, [m, 1].
        accounts: effects f(x) - f_-i(x) by name, [n, m].
        inputs: positions among the held-out inputs.
        shares: ascending.
    """
    n, now = len(problem.x), decisions(outputs)
    found: dict[str, list[float | None]] = {name: [None] * len(inputs) for name in accounts}
    order = {  # [q, n]: the most helpful first
        name: ((2 * now[inputs] - 1) * effects[:, inputs]).T.argsort(descending=True)
        for name, effects in accounts.items()
    }
    for share in shares:
        left = [(name, q) for name in accounts for q in range(len(inputs)) if found[name][q] is None]
        if not left:
            break
        sets = torch.stack([order[name][q, : round(share * n)] for name, q in left])
        options = {
            "effective_n": problem.descent.effective_n(n, sets.shape[1]),
            "memory_bytes": int(problem.memory_bytes),
        }
        stacks = retrained_stacks(problem.training, problem.held_out[inputs], sets, **options)
        moved = torch.cat([stack.outputs for stack in stacks])  # [b, q, 1]
        for (name, q), without in zip(left, outputs[inputs] - moved, strict=True):
            if decisions(without)[q] != now[inputs[q]]:
                found[name][q] = share
    return found
