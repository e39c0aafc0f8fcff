"""The benchmark runs in miniature; what it says of exactness is checked."""

import json
import re
from pathlib import Path

import pytest

from scripts.benchmarks import attribution

SMALL = ["--examples", "40", "--held-out", "20", "--width", "32", "--alone", "3", "--steps", "50"]


@pytest.mark.parametrize("outputs", ["1", "10"])
def test_sets_and_influence_functions_are_exact(outputs: str, tmp_path: Path) -> None:
    arguments = [*SMALL, "--outputs", outputs, "--json", str(tmp_path / "rows.json")]
    assert attribution.main(arguments) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    notes = {(row["what"], row["who"]): row["note"] for row in rows}
    assert "beyond the scores" in notes["scores and signed effects", "ours"]
    for what, who, bar in (
        ("100 halves left out", "one at a time", 1e-8),
        ("influence functions", "conjugate gradients", 1e-6),
    ):
        (found,) = re.findall(r"differs by (\S+)", notes[what, who])
        assert float(found) < bar
