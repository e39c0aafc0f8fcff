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
    """
    at_once = max(1, round(fraction * n))
    left, dropped = torch.arange(n), []
    while len(left) > n - round(until * n):
        order = bottom(score(left).cpu())
        dropped.append(left[order[:at_once]])
        left = left[order[at_once:].sort().values]
    return torch.cat([*dropped, left])


def kept(order: Tensor, removed: float) -> Tensor:
    """Which examples are left, [n] bool, when a fraction `removed` of them is dropped in this order."""
    left = torch.ones(len(order), dtype=torch.bool)
    left[order[: round(removed * len(order))]] = False
    return left
