"""Peak memory, as the benchmarks measure it."""

import pytest
import torch

from scripts.benchmarks.benchmark_helpers import measured
from tests.processes import answer


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
