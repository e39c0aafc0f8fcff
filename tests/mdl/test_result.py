"""Quantities of a learning curve against the published sums, label by label."""

import math
from pathlib import Path

import pytest

from mdl.result import MdlResult
from tests.made_up_runs import write_run


@pytest.fixture
def result(tmp_path: Path) -> MdlResult:
    stored = write_run(tmp_path, dataset="digits", eraser="leace", seeds=(0, 1)).result
    assert isinstance(stored, MdlResult)
    return stored


def label_by_label(result: MdlResult, s: int) -> list[float]:
    """Whitney et al. 2020: the loss at the i-th label, i = 1..N."""
    costs = {point.n: point.ce_next_bits[s] for point in result.curve if point.ce_next_bits}
    costs[0] = math.log2(result.num_classes)
    return [costs[max(n for n in costs if n < i)] for i in range(1, result.curve[-1].n + 1)]


def test_sums_over_labels_are_those_of_the_formulas(result: MdlResult) -> None:
    for s in range(2):
        losses = label_by_label(result, s)
        assert len(losses) == sum(labels for labels, _ in result.blocks(s)) == result.curve[-1].n
        for target in (0.0, 0.7, losses[-1], 9.0):
            exact = math.fsum(max(0.0, loss - target) for loss in losses)
            assert result.surplus_bits(s, target) == pytest.approx(exact, rel=1e-12, abs=1e-9)
        area = result.by_seed()["area_bits"][s]
        assert area == pytest.approx(math.fsum(losses) - len(losses) * losses[-1], rel=1e-11)


def test_the_sample_complexity_is_the_first_size_that_is_good_enough(result: MdlResult) -> None:
    losses = [(point.n, (point.ce_next_bits or point.ce_test_bits)[0]) for point in result.curve]
    for n, loss in losses:
        first = next(size for size, other in losses if other <= loss)
        assert result.sample_complexity(0, loss) == (first if first <= n else n)
        assert result.sample_complexity(0, -1.0) == math.inf
