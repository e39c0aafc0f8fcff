"""The benchmark runs in miniature; what it says of exactness is checked."""

import json
import re
from pathlib import Path

import pytest

from scripts.benchmarks import sample_info

SMALL = ["--examples", "40", "--held-out", "20", "--width", "32", "--alone", "3", "--steps", "50"]


@pytest.mark.parametrize("outputs", ["1", "10"])
def test_every_part_reports_and_scores_are_exact(outputs: str, tmp_path: Path, capsys) -> None:
    arguments = [*SMALL, "--outputs", outputs, "--json", str(tmp_path / "rows.json")]
    assert sample_info.main(arguments) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    who = [(row["what"], row["who"]) for row in rows]
    printed = capsys.readouterr().out
    for what, code in (
        ("kernel", "ours"),
        ("leaving out", "ours"),
        ("leaving out", "one at a time"),
        ("scores and signed effects", "ours"),
        ("influence functions", "ours"),
    ):
        assert (what, code) in who
        assert code in printed
    errors = [re.findall(r"relative error of a score (\S+),", row["note"]) for row in rows]
    assert all(float(error) < 1e-8 for part_errors in errors for error in part_errors)
    (change,) = [re.findall(r"change by (\S+) at most", row["note"]) for row in rows if "batches" in row["note"]]
    assert float(change[0]) < 1e-10
    (apart,) = [re.findall(r"differs by (\S+)", row["note"]) for row in rows if "sets by" in row["note"]]
    assert float(apart[0]) < 1e-8


def test_sizes_that_there_are_not_are_refused(capsys) -> None:
    with pytest.raises(SystemExit):
        sample_info.main(["--examples", "1700", "--held-out", "700"])
    assert "1,797 or less together" in capsys.readouterr().err
