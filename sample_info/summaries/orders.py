"""In which order a dataset's examples may be dropped: its summaries, from most to fewest examples.

Harutyunyan et al. 2021, figure 2(c).
"""

from collections.abc import Callable

import torch
from torch import Tensor


def bottom(scores: Tensor) -> Tensor:
    """Positions [n] in the order in which they are dropped, least informative first; ties in order of position."""
    return scores.argsort(stable=True)


def top(scores: Tensor) -> Tensor:
    """The opposite: most informative first."""
    return scores.argsort(stable=True, descending=True)


def random(n: int, seed: int) -> Tensor:
    """A seeded random order."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


def bottom_iterative(
    score: Callable[[Tensor], Tensor], n: int, *, fraction: float = 0.05, until: float = 1.0
) -> Tensor:
    """Least informative first, scores being computed again on what is left after every few examples.

    Information is unique: dropping one of two alike examples makes the other one informative.

    Args:
        score: positions [m] of the examples that are left -> their scores [m] as a training set of their own.
        n: number of examples.
        fraction: of the n examples that is dropped between two computations (the paper: 5 %).
        until: fraction of the n examples whose order is wanted; the rest follow by position, never scored again.

    Raises:
        ValueError: a fraction outside (0, 1], or not one score for each example left.
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction={fraction}: must lie in (0, 1]")
    at_once = max(1, round(fraction * n))
    left, dropped = torch.arange(n), []
    while len(left) > n - round(until * n):
        scores = score(left).cpu()
        if scores.shape != left.shape:
            raise ValueError(f"scores of shape {list(scores.shape)} for {len(left)} examples: need one for each")
        order = bottom(scores)
        dropped.append(left[order[:at_once]])
        left = left[order[at_once:].sort().values]
    return torch.cat([*dropped, left])


def kept(order: Tensor, removed: float) -> Tensor:
    """Positions, ascending, that are left when a fraction `removed` of the examples is dropped in this order.

    Raises:
        ValueError: a fraction that leaves nothing.
    """
    count = round(removed * len(order))
    if not 0 <= count < len(order):
        raise ValueError(f"removed={removed}: must lie in [0, 1) and leave at least one of {len(order)} examples")
    return order[count:].sort().values
