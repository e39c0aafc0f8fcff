"""The tables and the figure of kept runs by number of training images."""

import re
from pathlib import Path

from scripts.studies import loss_by_training_size
from tests.conftest import REPOSITORY
from tests.scripts.studies.test_table16 import KEPT, require_tables_of_the_pages

FIGURE = REPOSITORY / "docs/truncated_qleace.svg"


def test_the_tables_by_training_size_are_those_of_the_pages(tmp_path: Path, capsys, real_figures) -> None:
    assert loss_by_training_size.main([*KEPT, "--out", str(tmp_path / "drawn.svg")]) == 0
    printed = capsys.readouterr().out
    require_tables_of_the_pages(printed, [], ["test loss in bits (right)"])
    control = next(
        line for line in printed.splitlines() if line.startswith("| ConvNeXt V2, float32, 50 epochs, control |")
    )
    assert "| 2.32 |" in control
    assert control.endswith("| 1 |")
    drawn, kept = (re.findall(r">([^<>]*seeds?\))<", path.read_text()) for path in (tmp_path / "drawn.svg", FIGURE))
    assert len(drawn) == 6
    assert drawn == kept
