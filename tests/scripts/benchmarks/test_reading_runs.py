"""The benchmark of reading results reads as many runs as it is asked for, all of them whole."""

import json
import sys
from pathlib import Path

import pytest

from harness.results import load
from scripts.benchmarks.reading_runs import copies, main


def test_copies_are_whole_runs_of_their_own(tmp_path: Path) -> None:
    copies(4, tmp_path)
    results = load(tmp_path)
    assert results.runs["run_id"].nunique() == 4
    assert not [line for line in results.problems if "different versions" not in line]


def test_its_rows_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["results", "--runs", "3", "--json", str(tmp_path / "rows.json")])
    assert main() == 0
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["who"] for row in rows] == ["load: runs and curve", "Results.losses", "json.loads alone"]
