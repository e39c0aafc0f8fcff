"""Codelengths of a learning curve: of the online code in bits, and in the unit of the paper's Table 16."""

import itertools
import math
from collections.abc import Sequence


def online_code_bits(sizes: Sequence[int], ce_next_bits: Sequence[float], num_classes: int) -> float:
    """Return the total bits of the online code (Voita & Titov 2020, section 3.2).

    The first n_1 labels are sent with the uniform code, each later part with the model trained on all
    before it: n_1 log2 k + Σ_{i<m} (n_{i+1} - n_i) CE_i.

    Args:
        sizes: cumulative training sizes n_1..n_m.
        ce_next_bits: CE_i of the model trained on n_i examples, on the next part, for i = 1..m-1.
        num_classes: k.
    """
    parts = [after - before for before, after in itertools.pairwise(sizes)]
    return sizes[0] * math.log2(num_classes) + sum(part * bits for part, bits in zip(parts, ce_next_bits, strict=True))


def published_units(sizes: Sequence[int], ce_test_bits: Sequence[float]) -> float:
    """Return the unit of the paper's code and of its Table 16: Σ_i n_{i+1} CE_i / N over the sizes before the last.

    It serves comparison with the paper's tables, and is not a codelength: sizes are cumulative, and all losses are of
    one test set. With ten classes and ten sizes from 1,024 to N = 47,952, chance is 11.441. An untrained network's
    loss in bfloat16 gives 11.409, which is the paper's 11.41 ± 0.00.

    Args:
        sizes: cumulative training sizes n_1..n_m = N.
        ce_test_bits: CE_i of the model trained on n_i examples, on the test set, for i = 1..m-1.
    """
    return sum(n * bits for n, bits in zip(sizes[1:], ce_test_bits, strict=True)) / sizes[-1]
