"""Table 16 compared with kept runs: its tables stand on the study's pages, and its figure is drawn."""

from pathlib import Path

from scripts.studies import loss_by_training_size, table16
from tests.conftest import REPOSITORY

KEPT = [str(REPOSITORY / "docs" / name) for name in ("study", "study_published")]


def require_on_pages(printed: str) -> None:
    pages = "".join((REPOSITORY / "docs" / name).read_text() for name in ("study.md", "published_procedure_results.md"))
    assert [line for line in printed.splitlines() if line.startswith("|") and line not in pages] == []


def test_the_tables_of_kept_runs_are_those_of_the_page(tmp_path: Path, capsys, real_figures) -> None:
    assert table16.main([*KEPT, "--out", str(tmp_path / "table16.png")]) == 0
    printed = capsys.readouterr().out
    assert "7.14 ± 0.05" in printed
    require_on_pages(printed)
    assert (tmp_path / "table16.png").stat().st_size > 10_000


def test_the_losses_by_training_size_of_kept_runs_are_those_of_the_page(capsys) -> None:
    assert loss_by_training_size.main(KEPT) == 0
    printed = capsys.readouterr().out
    assert "48,976 images of 32 × 32" in printed
    require_on_pages(printed)


def test_no_runs_are_said_in_one_line(tmp_path: Path, capsys) -> None:
    assert table16.main([str(tmp_path), "--out", str(tmp_path / "a.png")]) != 0
    assert "no finished run" in capsys.readouterr().err
