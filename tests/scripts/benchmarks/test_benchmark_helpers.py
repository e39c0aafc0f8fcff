"""Peak memory, floors and failures, as the benchmarks report them."""

import pytest
import torch

from scripts.benchmarks.benchmark_helpers import Cost, Row, attempt, measured, show
from scripts.benchmarks.step_flops_and_bytes import Floor
from tests.processes import answer


def test_a_measurement_that_fails_is_a_row_and_floors_say_what_binds(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> list[Row]:
        raise KeyError("exp_avg")

    rows = attempt("training", "compiled", fails)
    rows += attempt("training", "ours", lambda: [Row("training", "ours", Cost(2.0), Floor(0.5, 1.0), "as it is")])
    show("a title", rows)
    printed, errors = capsys.readouterr()
    lines = [line.split() for line in printed.splitlines()]
    assert ["training", "compiled", "failed:", "KeyError:", "'exp_avg'"] in lines
    assert ["training", "ours", "2", "1", "1", "2", "memory", "as", "it", "is"] in lines
    assert 'raise KeyError("exp_avg")' in errors


def peak_of_a_sum() -> float | None:
    with measured(torch.device("cpu")) as cost:
        torch.ones(2**24, dtype=torch.float64).sum()
    return cost.peak_mib


def test_peak_memory_is_seen() -> None:
    """In a process of its own: one that has used much memory before may have kept it."""
    peak = answer(peak_of_a_sum)
    if peak is None:
        pytest.skip("no /proc/self/clear_refs on this system")
    assert 100 < peak < 300  # 128 MiB and whatever the allocator adds
