"""The benchmark runs in miniature; function and command have to give equal bits for it to end."""

import json
from pathlib import Path

import pytest

from scripts.benchmarks import codelength


def test_both_report(tmp_path: Path, capsys) -> None:
    small = ["--seeds", "1", "--sizes", "2", "--rounds", "1", "--train", "quick", "--model", "linear"]
    assert codelength.main([*small, "--json", str(tmp_path / "rows.json")]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["who"] for row in rows] == ["codelength", "python -m mdl"]
    assert all(row["cost"]["seconds"] > 0 for row in rows)
    assert "of its processor time; equal bits" in capsys.readouterr().out


def test_numbers_that_there_are_not_are_refused(capsys) -> None:
    with pytest.raises(SystemExit):
        codelength.main(["--sizes", "1"])
    assert "--sizes at least 2" in capsys.readouterr().err
