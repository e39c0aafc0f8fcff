"""The command line of the scripts."""

import pytest

from scripts.command_line import argument_parser
from scripts.manage_sweep.__main__ import main as sweep
from scripts.report import main as report
from scripts.show_erasers import main as show_erasers
from scripts.studies import loss_by_training_size, table16, toy_information


def test_a_wrong_argument_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        report([".", "--colums"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "python -m scripts.report: unrecognized arguments: --colums (see --help)"


@pytest.mark.parametrize(
    ("main", "words"),
    [
        (report, ["nodir"]),
        (sweep, ["status", "nodir"]),
        (table16.main, ["nodir"]),
        (loss_by_training_size.main, ["nodir"]),
    ],
)
def test_a_folder_of_runs_that_is_not_there_is_one_line(main, words: list[str], tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "runs: nodir: no such folder; give the runs_dir of a command, by default runs/" in line


@pytest.mark.parametrize("main", [show_erasers, table16.main, toy_information.main])
@pytest.mark.parametrize("name", ["a.txt", "a"])
def test_a_figure_that_cannot_be_written_is_refused_before_anything_is_computed(
    main, name: str, tmp_path, capsys
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--out", str(tmp_path / name)])
    assert (
        f"argument --out: {tmp_path / name}: must be a figure's name, such as {tmp_path / 'a.svg'}"
        in capsys.readouterr().err
    )


def test_help_shows_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        argument_parser("report", "What it does.", out="report").parse_args(["--help"])
    assert "usage: python -m scripts.report" in capsys.readouterr().out
