"""The benchmark of sample information runs in miniature; the errors that it reports are small."""

import argparse
import re

import pytest

from scripts.benchmarks import sample_info
from scripts.benchmarks.sample_info import SampleInfoBenchmark


@pytest.mark.parametrize("outputs", [1, 10])
def test_scores_are_exact(outputs: int) -> None:
    sizes = {"examples": 40, "held_out": 20, "width": 32, "alone": 3, "steps": 50, "outputs": outputs}
    bench = SampleInfoBenchmark(argparse.Namespace(**sizes, device="cpu"))
    notes = {(row.what, row.who): row.note for row in bench.rows()}
    for work, pattern in (
        (("leaving out", "ours"), r"relative error of a score (\S+),"),
        (("kernel", "Jacobians"), r"differs by (\S+)"),
    ):
        (error,) = re.findall(pattern, notes[work])
        assert float(error) < 1e-8


def test_sizes_that_there_are_not_are_refused(capsys) -> None:
    with pytest.raises(SystemExit):
        sample_info.main(["--examples", "1700", "--held-out", "700"])
    assert "1,797 or less together" in capsys.readouterr().err
