"""Quantities of a seed's learning curve other than its codelength, in bits: docs/codes.md.

Excess description length (Donoway et al. 2026), surplus description length and ε-sample complexity (Whitney et al.
2020), and the area above the last loss coded (Finzi et al. 2026). A seed is given by its position in the result.
"""

import itertools
import math
from collections.abc import Sequence

from harness.result import MdlResult

Blocks = Sequence[tuple[int, float]]  # labels, and what each of them costs


def sizes_of(result: MdlResult) -> list[int]:
    """Return the ends of the blocks of labels: all training sizes, and N where nothing was trained on everything."""
    sizes = [point.n for point in result.curve]
    return sizes if sizes[-1] == result.train_size else [*sizes, result.train_size]


def blocks_of(result: MdlResult, s: int) -> Blocks:
    """Return labels and bits per label of each block; the first pays what the others leave."""
    sizes = sizes_of(result)
    losses = [point.ce_next_bits[s] for point in result.curve if point.ce_next_bits]
    later = [(after - before, loss) for (before, after), loss in zip(itertools.pairwise(sizes), losses, strict=True)]
    first = result.mdl.total_bits[s] - sum(labels * loss for labels, loss in later)
    return [(sizes[0], first / sizes[0]), *later]


def excess_bits(result: MdlResult, s: int) -> float:
    """Return the EDL: the codelength less N times the test loss of the network that has seen all labels."""
    return result.mdl.total_bits[s] - result.train_size * result.final.loss_bits[s]


def area_bits(result: MdlResult, s: int) -> float:
    """Return the area between the curve of bits per label and its last value, over all N labels."""
    blocks = blocks_of(result, s)
    return sum(labels * (loss - blocks[-1][1]) for labels, loss in blocks)


def surplus_bits(result: MdlResult, s: int, epsilon: float) -> float:
    """Return the SDL(ε), Σ_i max(loss_i - ε, 0) over the labels."""
    return sum(labels * max(0.0, loss - epsilon) for labels, loss in blocks_of(result, s))


def sample_complexity(result: MdlResult, s: int, epsilon: float) -> float:
    """Return the εSC, the least training size whose network costs ε or less per new label; infinite: above N.

    New are the labels of the next block; after the last size, those of the test split.
    """
    losses = ((point.n, (point.ce_next_bits or point.ce_test_bits)[s]) for point in result.curve)
    return next((n for n, loss in losses if loss <= epsilon), math.inf)
