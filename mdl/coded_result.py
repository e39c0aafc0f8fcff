"""The result of a learning curve, computed and logged, for every code."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

from harness.experiment import Prepared
from harness.logger import Logger
from harness.loss_curves import label_entropy_bits
from harness.result_fields import Final
from harness.statistics import Spread
from mdl.online_code import online_code_bits, published_units
from mdl.result import CodelengthBits, MdlResult, Point


def result_of_curve(
    prepared: Prepared, curve: Sequence[Point], sizes: Sequence[int], total_bits: Sequence[float], **further: Any
) -> MdlResult:
    """Compute the result of a learning curve and the codelengths of all labels, an entry per seed.

    Args:
        prepared: the experiment.
        curve: a point for each size; the last size may lack one.
        sizes: training sizes n_1..n_m = N.
        total_bits: codelengths.
        **further: other fields of the result.
    """
    last, coding = curve[-1], curve[: len(sizes) - 1]
    assert last.test_accuracy is not None
    calibrated = zip(*(point.ce_next_calibrated_bits or () for point in coding), strict=True)
    tested = zip(*(point.ce_test_bits for point in coding), strict=True)
    return MdlResult(
        **prepared.result_fields(),
        mdl=CodelengthBits(
            bits_per_sample=[bits / sizes[-1] for bits in total_bits],
            total_bits=list(total_bits),
            published=[published_units(sizes, ce_test) for ce_test in tested],
            calibrated_bits_per_sample=[
                online_code_bits(sizes, ce_next, prepared.num_classes) / sizes[-1] for ce_next in calibrated
            ]
            or None,
        ),
        curve=list(curve),
        final=Final(loss_bits=last.ce_test_bits, accuracy=last.test_accuracy, train_loss_bits=last.ce_train_bits),
        label_entropy_bits=label_entropy_bits(prepared.dataset.splits["train"].labels),
        **further,
    )


def logged(result: MdlResult, logger: Logger) -> MdlResult:
    """Log every size, and codelengths and final losses, means over seeds; return the result."""
    for point in result.curve:
        means = {"ce_next_bits": point.ce_next_bits, "ce_test_bits": point.ce_test_bits}
        logger.log({"mdl/n": point.n} | {f"mdl/{name}": mean(bits) for name, bits in means.items() if bits is not None})
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
    return result
