"""The tables and the figure of kept runs beside Table 16."""

from pathlib import Path

from scripts.studies import table16
from tests.conftest import REPOSITORY

KEPT = [str(REPOSITORY / "docs" / name) for name in ("study", "study_published")]


def require_rows_of_the_pages(printed: str, *words: str) -> None:
    """Check that every printed row of a table stands on a page of the study, and that these words are in one."""
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    for expected in words:
        assert any(expected in line for line in lines), expected
    pages = "".join((REPOSITORY / "docs" / name).read_text() for name in ("study.md", "published_procedure_results.md"))
    assert [line for line in lines if line not in pages] == []


def test_the_tables_of_kept_runs_are_those_of_the_pages(tmp_path: Path, capsys, real_figures) -> None:
    assert table16.main([*KEPT, "--out", str(tmp_path / "table16.png")]) == 0
    require_rows_of_the_pages(
        capsys.readouterr().out,
        "7.14 ± 0.05",
        "average x scored | 4.69 ± 0.03",
        "Table 16's unit, by validation losses",
    )
    assert (tmp_path / "table16.png").stat().st_size > 10_000


def test_no_runs_are_said_in_one_line(tmp_path: Path, capsys) -> None:
    assert table16.main([str(tmp_path), "--out", str(tmp_path / "a.png")]) != 0
    assert "no finished run" in capsys.readouterr().err
