"""The command line of the scripts."""

import pytest

from scripts.command_line import argument_parser
from scripts.manage_sweep.__main__ import main as sweep
from scripts.report import main as report
from scripts.studies import loss_by_training_size, table16


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


def test_help_shows_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        argument_parser("report", "What it does.", out="report").parse_args(["--help"])
    assert "usage: python -m scripts.report" in capsys.readouterr().out
