"""Codelength and power law of a learning curve, for every code: computed, made its result, and logged."""

import itertools
import math
from collections.abc import Sequence
from statistics import mean

import numpy as np

from harness.logger import Logger
from harness.result_fields import Coded, Codelength, Final, Point, published_units
from harness.statistics import Spread


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


def result_of_curve(curve: Sequence[Point], sizes: Sequence[int], total_bits: Sequence[float]) -> Coded:
    """Compute the result of a learning curve and the codelengths of all labels, an entry per seed.

    Args:
        curve: a point for each size; the last size may lack one.
        sizes: training sizes n_1..n_m = N.
        total_bits: codelengths.
    """
    last, coding = curve[-1], curve[: len(sizes) - 1]
    assert last.test_accuracy is not None
    following = zip(*(point.ce_next_bits or () for point in coding), strict=True)
    tested = zip(*(point.ce_test_bits for point in coding), strict=True)
    return Coded(
        mdl=Codelength(
            bits_per_sample=[bits / sizes[-1] for bits in total_bits],
            total_bits=list(total_bits),
            published=[published_units(sizes, ce_test) for ce_test in tested],
        ),
        curve=list(curve),
        power_law=[fit_power_law(sizes[:-1], ce_next) for ce_next in following],
        final=Final(loss_bits=last.ce_test_bits, accuracy=last.test_accuracy, train_loss_bits=last.ce_train_bits),
    )


def logged_result(logger: Logger, curve: Sequence[Point], sizes: Sequence[int], total_bits: Sequence[float]) -> Coded:
    """Compute the result as `result_of_curve`, and log every size and the totals."""
    for point in curve:
        log_point(logger, point)
    result = result_of_curve(curve, sizes, total_bits)
    log_summary(logger, result)
    return result


def log_point(logger: Logger, point: Point) -> None:
    """Log a training size, means over seeds."""
    means = {"ce_next_bits": point.ce_next_bits, "ce_test_bits": point.ce_test_bits}
    logger.log({"mdl/n": point.n} | {f"mdl/{name}": mean(bits) for name, bits in means.items() if bits is not None})


def log_summary(logger: Logger, result: Coded) -> None:
    """Log the totals."""
    code = Spread.of(result.mdl.bits_per_sample)
    logger.summarise(
        {
            "result/bits_per_sample": code.mean,
            "result/bits_per_sample_std": code.std or 0.0,
            "result/published": mean(result.mdl.published),
            "result/loss_bits": mean(result.final.loss_bits),
            "result/accuracy": mean(result.final.accuracy),
        }
    )
