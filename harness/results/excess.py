"""Quantities of a learning curve other than its codelength, per seed, in bits: docs/bits.md.

Excess description length (Donoway et al. 2026), surplus description length and ε-sample complexity (Whitney et al.
2020), and the area above the last loss coded (Finzi et al. 2026).
"""

import itertools
from collections.abc import Sequence

from harness.result import MdlResult

Blocks = Sequence[tuple[int, float]]  # labels, and what each of them costs


def sizes_of(result: MdlResult) -> list[int]:
    """Return the ends of the blocks of labels: all training sizes, and N where nothing was trained on everything."""
    sizes = [point.n for point in result.curve]
    return sizes if sizes[-1] == result.train_size else [*sizes, result.train_size]


def blocks_of(result: MdlResult, s: int) -> Blocks:
    """Return labels and bits per label of each block of seed number `s`; the first pays what the others leave."""
    sizes = sizes_of(result)
    losses = [point.ce_next_bits[s] for point in result.curve if point.ce_next_bits]
    later = [(after - before, loss) for (before, after), loss in zip(itertools.pairwise(sizes), losses, strict=True)]
    first = result.mdl.total_bits[s] - sum(labels * loss for labels, loss in later)
    return [(sizes[0], first / sizes[0]), *later]


def excess_bits(result: MdlResult) -> list[float]:
    """Return the EDL: the codelength less N times the test loss of the network that has seen all labels."""
    pairs = zip(result.mdl.total_bits, result.final.loss_bits, strict=True)
    return [code - result.train_size * loss for code, loss in pairs]


def area_bits(result: MdlResult) -> list[float]:
    """Return the area between the curve of bits per label and its last value, over all N labels."""
    curves = [blocks_of(result, s) for s in range(len(result.seeds))]
    return [sum(labels * (loss - blocks[-1][1]) for labels, loss in blocks) for blocks in curves]


def surplus_bits(result: MdlResult, epsilon: Sequence[float]) -> list[float]:
    """Return the SDL(ε), Σ_i max(loss_i - ε, 0) over the labels, ε by seed."""
    curves = [blocks_of(result, s) for s in range(len(result.seeds))]
    pairs = zip(curves, epsilon, strict=True)
    return [sum(labels * max(0.0, loss - target) for labels, loss in blocks) for blocks, target in pairs]


def sample_complexity(result: MdlResult, epsilon: Sequence[float]) -> list[int | None]:
    """Return the εSC, the least training size whose network costs ε or less per new label, by seed; None: above N.

    New are the labels of the next block; after the last size, those of the test split.
    """
    found: list[int | None] = []
    for s, target in enumerate(epsilon):
        losses = ((point.n, (point.ce_next_bits or point.ce_test_bits)[s]) for point in result.curve)
        found.append(next((n for n, loss in losses if loss <= target), None))
    return found
