"""Tables of kept runs beside Table 16 and by number of images stand on the pages of the study; a figure is drawn."""

from pathlib import Path

from scripts.studies import loss_by_training_size, table16
from tests.conftest import REPOSITORY

KEPT = [str(REPOSITORY / "docs" / name) for name in ("study", "study_published")]


def test_the_tables_of_kept_runs_are_those_of_the_pages(tmp_path: Path, capsys, real_figures) -> None:
    assert table16.main([*KEPT, "--out", str(tmp_path / "table16.png")]) == loss_by_training_size.main(KEPT) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    for words in ("7.14 ± 0.05", "LeNet, 48,976 images of 32 × 32", "published: test loss in bits after n images"):
        assert any(words in line for line in lines), words
    pages = "".join((REPOSITORY / "docs" / name).read_text() for name in ("study.md", "published_procedure_results.md"))
    assert [line for line in lines if line not in pages] == []
    assert (tmp_path / "table16.png").stat().st_size > 10_000


def test_no_runs_are_said_in_one_line(tmp_path: Path, capsys) -> None:
    assert table16.main([str(tmp_path), "--out", str(tmp_path / "a.png")]) != 0
    assert "no finished run" in capsys.readouterr().err
