"""Codelength and power law of a learning curve, for every code."""

import itertools
import math
from collections.abc import Sequence

import numpy as np


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


def fit_power_law(sizes: Sequence[int], ce_bits: Sequence[float]) -> dict[str, float] | None:
    """Fit a · n^-b + c with a, b, c >= 0 by least squares; None where it does not describe the curve.

    Returns a, b, c (bits) and r2, the share of variance explained. A curve that does not fall, or of
    which less than 90 % is explained, gets None rather than numbers that mean nothing.
    """
    n, y = np.asarray(sizes, float), np.asarray(ce_bits, float)
    spread = float(((y - y.mean()) ** 2).sum())
    if len(n) < 4 or spread == 0 or y[-1] >= y[0]:
        return None
    from scipy.optimize import least_squares

    def residuals(p: np.ndarray) -> np.ndarray:
        return p[0] * (n / n[0]) ** -p[1] + p[2] - y

    start = np.array([max(y[0] - y[-1], 1e-6), 0.5, max(y[-1] / 2, 1e-6)])
    solution = least_squares(residuals, start, bounds=([0, 0, 0], [np.inf, 10, np.inf]))
    a, b, c = solution.x
    r2 = 1 - float((solution.fun**2).sum()) / spread
    if r2 < 0.9 or b < 1e-3:
        return None
    return {"a": float(a * n[0] ** b), "b": float(b), "c": float(c), "r2": r2}
