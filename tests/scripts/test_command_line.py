"""The command line of the scripts."""

import pytest

from scripts.command_line import argument_parser
from scripts.report import main as report


def test_a_wrong_argument_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        report(["runs", "--colums"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "python -m scripts.report: unrecognized arguments: --colums (see --help)"


def test_help_shows_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        argument_parser("report", "What it does.", out="report").parse_args(["--help"])
    assert "usage: python -m scripts.report" in capsys.readouterr().out
