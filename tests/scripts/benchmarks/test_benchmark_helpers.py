"""Measurements and comparisons of the benchmarks' frame."""

from pathlib import Path

import pytest
import torch

from scripts.benchmarks.benchmark_helpers import Cost, Row, argument_parser, finish, measured
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


def test_rows_of_the_same_work_are_compared_with_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = argument_parser("x", "What it is.", size=3, out=tmp_path).parse_args(["--size", "5"])
    assert (options.size, options.out, options.device, options.json) == (5, tmp_path, "cpu", None)
    rows = [
        Row("a", "ours", Cost(2.0), floor_seconds=0.5),
        Row("b", "ours", Cost(1.0)),
        Row("a", "theirs", Cost(7.0)),
        Row("b", "theirs", None, note="left out"),
    ]
    assert finish(options, "title", rows) == 0
    cells = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["a", "ours", "2", "1", "0.5", "4"] in cells
    assert ["a", "theirs", "7", "3.5"] in cells
    assert ["b", "theirs", "left", "out"] in cells
