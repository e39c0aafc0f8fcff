"""From cross-entropies at growing training sizes to a codelength in bits, and to the paper's own unit."""

import itertools
import math
from collections.abc import Sequence


def online_code_bits(sizes: Sequence[int], ce_next_bits: Sequence[float], num_classes: int) -> float:
    """Total bits of the online code (Voita & Titov 2020, section 3.2).

    The first n_1 labels are sent with the uniform code, each later part with the model trained on all
    before it: n_1 log2 k + Σ_{i<m} (n_{i+1} - n_i) CE_i.

    Args:
        sizes: cumulative training sizes n_1..n_m.
        ce_next_bits: CE_i of the model trained on n_i examples, on the next part, for i = 1..m-1.
        num_classes: k.
    """
    parts = [after - before for before, after in itertools.pairwise(sizes)]
    return sizes[0] * math.log2(num_classes) + sum(part * bits for part, bits in zip(parts, ce_next_bits, strict=True))


def paper_units(sizes: Sequence[int], ce_test_bits: Sequence[float], total: int) -> float:
    """The unit of the paper's Table 16: Σ_i n_i CE_i / N with cumulative sizes and CE_i on held-out data.

    Not a codelength, but its only entry at chance (QLEACE MLP, 11.41 ± 0.00) identifies it: at chance with
    m = 10, n_1 = 1,024, N = 50,000 it is 11.39. It is here so that tables can stand beside the paper's.
    """
    return sum(n * bits for n, bits in zip(sizes, ce_test_bits, strict=True)) / total
