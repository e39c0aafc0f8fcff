"""Table 16 compared with kept runs: its tables stand on the study's pages, and its figure is drawn."""

from pathlib import Path

from scripts.studies.table16 import main
from tests.conftest import REPOSITORY

KEPT = [str(REPOSITORY / "docs" / name) for name in ("study", "study_published")]


def test_the_tables_of_kept_runs_are_those_of_the_page(tmp_path: Path, capsys, real_figures) -> None:
    assert main([*KEPT, "--out", str(tmp_path / "table16.png")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert any("7.14 ± 0.05" in line for line in lines)
    pages = "".join((REPOSITORY / "docs" / name).read_text() for name in ("study.md", "published_procedure_results.md"))
    assert [line for line in lines if line not in pages] == []
    assert (tmp_path / "table16.png").stat().st_size > 10_000


def test_no_runs_are_said_in_one_line(tmp_path: Path, capsys) -> None:
    assert main([str(tmp_path), "--out", str(tmp_path / "a.png")]) != 0
    assert "no finished run" in capsys.readouterr().err
