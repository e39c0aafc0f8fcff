"""The benchmark runs in miniature; what it says of exactness is checked."""

import json
import re
from pathlib import Path

import pytest

from scripts.benchmarks import kernel

SMALL = ["--examples", "60", "--test", "20", "--product", "50"]


def test_every_part_reports_and_predictions_are_those_of_refitting(tmp_path: Path, capsys) -> None:
    assert kernel.main([*SMALL, "--json", str(tmp_path / "rows.json")]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    who = [(row["what"], row["who"]) for row in rows]
    assert who[:3] == [("kernel", "ours"), ("code, one order", "ours"), ("code, one order", "refitting")]
    assert "5 ridges" in capsys.readouterr().out
    (error,) = re.findall(r"differ by (\S+)", rows[2]["note"])
    assert float(error) < 1e-10
    assert all(row["floor_seconds"] > 0 for row in rows if row["who"] == "ours")


def test_sizes_that_there_are_not_are_refused(capsys) -> None:
    with pytest.raises(SystemExit):
        kernel.main(["--examples", "5"])
    assert "--examples must be at least 10" in capsys.readouterr().err
