"""The tables and the figure of kept runs beside Table 16."""

import re
from collections.abc import Iterable
from pathlib import Path

from scripts.studies import table16
from tests.conftest import REPOSITORY

KEPT = [str(REPOSITORY / "docs" / name) for name in ("study", "study_published")]
FIGURE = REPOSITORY / "docs/study_table16.svg"


def tables(text: str) -> dict[str, list[str]]:
    """Return the rows of every table in Markdown by its header."""
    found: dict[str, list[str]] = {}
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("|"):
            found[line] = [row for row in iter(lambda: next(lines, ""), "") if row.startswith("|")][1:]
    return found


def require_tables_of_the_pages(printed: str, whole: Iterable[str], parts: Iterable[str] = ()) -> None:
    """Check tables, named by the first words of their headers: the pages have all rows, or some, and no other row."""
    pages = "\n\n".join((REPOSITORY / "docs" / name).read_text() for name in ("study.md", "study_details.md"))
    on_pages, commands = tables(pages), tables(printed)
    for first in (*whole, *parts):
        (header,) = (header for header in commands if header.startswith(f"| {first} |"))
        rows = on_pages[header]
        assert rows
        assert [row for row in rows if row not in commands[header]] == []
        assert first not in whole or rows == commands[header]


def test_the_tables_of_kept_runs_are_those_of_the_pages(tmp_path: Path, capsys, real_figures) -> None:
    assert table16.main([*KEPT, "--out", str(tmp_path / "table16.svg")]) == 0
    printed = capsys.readouterr().out
    epochs = "Table 16's unit, by validation losses after epochs", "the same of trainings that patience ends"
    require_tables_of_the_pages(printed, ["", "change"], ["published, other settings", *epochs])
    assert "| MLP, in the paper's standard deviations | -1.3 | -1.1 | +0.1 |" in printed
    assert "| MLP, in standard errors of the difference | -2.9 | -2.4 | +0.2 |" in printed
    assert "| LeNet, in the paper's standard deviations | +0.5 | -1.3 |  |  |  | -2.9 |" in printed
    bars = [re.findall(r">([^<>]*seeds?\))<", path.read_text()) for path in (tmp_path / "table16.svg", FIGURE)]
    assert {"the paper: 7.14 (5 seeds)", "ours: 6.66 (2 seeds)", "paper's loop, tuned: 7.07 (5 seeds)"} <= set(bars[0])
    assert bars[0] == bars[1]


def test_a_run_that_several_folders_have_counts_once(tmp_path: Path, capsys) -> None:
    figure = ["--out", str(tmp_path / "a.svg")]
    (tmp_path / "copies").symlink_to(REPOSITORY / "docs/study")
    assert table16.main([KEPT[0], str(tmp_path / "copies"), *figure]) == 0
    assert (
        "| ours | 6.66 ± 0.00 | 8.04 ± 0.01 | 8.25 ± 0.04 | 9.92 ± 0.02 |  | 9.67 ± 0.14 |  | 2 |"
        in capsys.readouterr().out
    )


def test_no_runs_are_said_in_one_line(tmp_path: Path, capsys) -> None:
    assert table16.main([str(tmp_path), "--out", str(tmp_path / "a.png")]) != 0
    assert "no finished run" in capsys.readouterr().err
