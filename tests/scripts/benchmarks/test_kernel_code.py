"""The benchmark runs in miniature; that predictions are those of refitting, tests/mdl/test_kernel_code.py says."""

import json
from pathlib import Path

import pytest

from scripts.benchmarks import kernel_code

SMALL = ["--examples", "60", "--test", "20", "--product", "50"]


def test_every_part_reports(tmp_path: Path, capsys) -> None:
    assert kernel_code.main([*SMALL, "--json", str(tmp_path / "rows.json")]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["what"] for row in rows] == ["kernel", "code, one order", "code and test examples"]
    assert "5 ridges" in capsys.readouterr().out
    assert all(row["floor_seconds"] > 0 for row in rows)


def test_sizes_that_there_are_not_are_refused(capsys) -> None:
    with pytest.raises(SystemExit):
        kernel_code.main(["--examples", "5"])
    assert "--examples must be at least 10" in capsys.readouterr().err
