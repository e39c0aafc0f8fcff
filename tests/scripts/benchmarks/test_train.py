"""Training in both arrangements of the seeds, timed on the same work."""

import json
from pathlib import Path

from scripts.benchmarks.train import main


def test_both_arrangements_end_at_the_same_validation_loss(tmp_path: Path) -> None:
    small = ["--dataset", "cifar", "--samples", "100", "--model", "linear", "--seeds", "2", "--epochs", "1"]
    assert main([*small, "--skip-peer", "--json", str(tmp_path / "rows.json")]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["who"] for row in rows][:2] == ["ours, in one network", "ours, one after another"]
    assert len({row["note"].split(",")[0] for row in rows}) == 1
