"""The benchmark of sample information runs in miniature; the errors that it reports are small."""

import argparse
import re

import pytest

from scripts.benchmarks import sample_info
from scripts.benchmarks.sample_info import SampleInfoBenchmark


@pytest.mark.parametrize("outputs", [1, 10])
def test_scores_are_exact(outputs: int) -> None:
    sizes = {"examples": 40, "held_out": 20, "width": 32, "alone": 3, "steps": 50, "outputs": outputs}
    bench = SampleInfoBenchmark(argparse.Namespace(**sizes, learning_rate=1e-3, memory_gib=1.0, device="cpu"))
    notes = {(row.what, row.who): row.note for row in bench.rows()}
    for work, pattern, largest in (
        (("leaving out", "ours"), r"relative error of a score (\S+),", 1e-8),
        (("all of it again", "ours"), r"change by (\S+) at most", 1e-10),
        (("100 halves left out", "one at a time"), r"differs by (\S+)", 1e-8),
    ):
        (error,) = re.findall(pattern, notes[work])
        assert float(error) < largest


def test_sizes_that_there_are_not_are_refused(capsys) -> None:
    with pytest.raises(SystemExit):
        sample_info.main(["--examples", "1700", "--held-out", "700"])
    assert "1,797 or less together" in capsys.readouterr().err
