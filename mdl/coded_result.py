"""The result of a learning curve, for every code: computed and logged."""

from collections.abc import Sequence
from statistics import mean

from harness.logger import Logger
from harness.result_fields import Final
from harness.statistics import Spread
from mdl.codelength_and_power_law import fit_power_law
from mdl.result import Coded, CodelengthBits, Point, published_units


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
        mdl=CodelengthBits(
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
            **({} if code.std is None else {"result/bits_per_sample_std": code.std}),
            "result/published": mean(result.mdl.published),
            "result/loss_bits": mean(result.final.loss_bits),
            "result/accuracy": mean(result.final.accuracy),
        }
    )
