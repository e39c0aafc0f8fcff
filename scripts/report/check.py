"""Telling results that a report can show from those that contradict themselves."""

import math
from typing import Any

from harness.result import MdlResult
from mdl.codelength import online_code_bits, paper_units

INFORMATION = "sample_info"  # the verb that scores examples, and whose runs have tables of their own
_TOLERANCE = 1e-6  # relative; results are stored in full, sums may be ordered differently


class UnusableError(ValueError):
    """A run that cannot be part of a report; the message says why."""


def check(result: Any) -> None:
    """Recompute every codelength from its curve: nats, or another unit's numbers, do not pass.

    Raises:
        UnusableError: the codelengths are not those of the learning curve in bits.
    """
    if not isinstance(result, MdlResult):
        return
    curve, total = result.curve, result.train_size
    sizes = [point.n for point in curve]
    for s, seed in enumerate(result.seeds):
        bits = online_code_bits(sizes, [(p.ce_next_bits or [])[s] for p in curve[:-1]], result.num_classes)
        expected = {
            "total_bits": bits,
            "bits_per_sample": bits / total,
            "paper": paper_units(sizes, [p.ce_test_bits[s] for p in curve], total),
        }
        for key, value in expected.items():
            if not math.isclose(getattr(result.mdl, key)[s], value, rel_tol=_TOLERANCE):
                raise UnusableError(
                    f"mdl.{key} of seed {seed} is {getattr(result.mdl, key)[s]:.6g}, but its curve in bits gives "
                    f"{value:.6g}: mixed units?"
                )
