"""The process of a command where nobody reads its output, or the terminal lacks a character."""

import functools
import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conf.command_process import exit_code, let_threads_sleep
from mdl.__main__ import COMMAND as MDL

TINY = ["model=linear", "train=quick", "train.max_epochs=1", "mdl.num_chunks=2", "seeds=[0]", "logger.mode=disabled"]
REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("words", ["mdl device=cuda:99", "scripts.prepare_dataset --help"])
def test_threads_that_wait_sleep(words: str) -> None:
    """Both import torch, whose OpenMP shows its settings then."""
    environment = {**os.environ, "OMP_DISPLAY_ENV": "true"}
    command = [sys.executable, "-m", *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, env=environment)
    shown = re.search(r"OMP_WAIT_POLICY = '(\w+)'", done.stderr)
    assert shown is not None
    assert shown[1] == "PASSIVE"


def test_threads_do_what_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    let_threads_sleep()
    assert os.environ["OMP_WAIT_POLICY"] == "active"


def test_output_that_nobody_reads_is_no_error(monkeypatch, capsys) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr("sys.stdout", os.fdopen(writer, "w"))
    assert exit_code(lambda: print("help") or 0, "mdl") == 1
    assert capsys.readouterr().err == ""


def unread() -> int:
    """Return the end of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize("output", [unread, functools.partial(os.open, "/dev/full", os.O_WRONLY)])
def test_runs_have_finished_whoever_reads_of_it(command, monkeypatch, output) -> None:
    for words in (["-m", "eraser=control,leace"], ["eraser=control"]):
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", os.fdopen(output(), "w"))
            outcome = command(MDL, *words, *TINY)
        assert outcome.code == 1
        assert set(outcome.err.splitlines()) <= {
            "No space left on device",
            "results are saved, but not all tables and figures are written: No space left on device",
        }
    assert len(list(Path("runs").glob("*/result.json"))) == 2
    assert not list(Path("runs").rglob("error-*.json"))


@pytest.mark.parametrize("words", [["--help"], ["eraser=control"]])
def test_a_closed_output_is_no_error(command, monkeypatch, words: list[str]) -> None:
    monkeypatch.setattr("sys.stdout", None)
    outcome = command(MDL, *words, *TINY)
    assert (outcome.code, outcome.err) == (0, "")


def test_ctrl_c_ends_a_script_with_one_line_also_while_it_imports(tmp_path: Path) -> None:
    (tmp_path / "jinja2.py").write_text("raise KeyboardInterrupt")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}
    command = [sys.executable, "-m", "scripts.report", "runs"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == -signal.SIGINT  # 130 in a shell
    assert done.stderr == "interrupted: launch the same command again to continue\n"


@pytest.mark.parametrize("sweeps", [[], ["-m"]], ids=["run", "sweep"])
def test_a_terminal_without_a_character_shows_another(command, monkeypatch, sweeps: list[str]) -> None:
    """With PYTHONIOENCODING=ascii, "±" ended the command after the training, without a table."""
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", terminal)
    outcome = command(MDL, *sweeps, *TINY, "seeds=[0,1]")
    assert outcome.code == 0, outcome.err
    terminal.flush()
    shown = terminal.buffer.getvalue().decode("ascii")
    assert re.search(r"bits per label +\d\.\d+ \? \d\.\d+|\d\.\d+ \? \d\.\d+ bits per label", shown)
    assert "tables: " in shown
