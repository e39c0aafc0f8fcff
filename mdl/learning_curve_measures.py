"""Quantities of learning curves that need a control: docs/codes.md.

They are surplus description length in bits and ε-sample complexity (Whitney et al. 2020), where ε is the control's test
loss. A seed is given by its position in the result.
"""

import math
from typing import Any

from harness.results.columns import Row
from mdl.result import MdlResult


def surplus_bits(result: MdlResult, s: int, epsilon: float) -> float:
    """Return the SDL(ε), Σ_i max(loss_i - ε, 0) over the labels."""
    return sum(labels * max(0.0, loss - epsilon) for labels, loss in result.blocks(s))


def sample_complexity(result: MdlResult, s: int, epsilon: float) -> float:
    """Return the εSC, the least training size whose network costs ε or less per new label; infinite: above N.

    New are the labels of the next block; after the last size, those of the test split.
    """
    losses = ((point.n, (point.ce_next_bits or point.ce_test_bits)[s]) for point in result.curve)
    return next((n for n, loss in losses if loss <= epsilon), math.inf)


def measures_of(row: Row, control: Row | None) -> dict[str, Any]:
    """Return what the learning curves of a row (`harness.results.arrange`) say against its control's losses."""
    coded = {seed: row["members"][seed] for seed in row["seed"] if isinstance(row["members"][seed][0], MdlResult)}
    measures: dict[str, Any] = {"surplus_bits": [None for _ in row["seed"]], "sample_complexity": None}
    targets = {} if control is None else {
        seed: result.final.loss_bits[s] for seed, (result, s) in control["members"].items()
    }  # fmt: skip
    if coded and targets.keys() >= coded.keys():
        least = [sample_complexity(result, s, targets[seed]) for seed, (result, s) in coded.items()]
        measures["sample_complexity"] = max(least)
        measures["surplus_bits"] = [surplus_bits(result, s, targets[seed]) for seed, (result, s) in coded.items()]
    return measures
