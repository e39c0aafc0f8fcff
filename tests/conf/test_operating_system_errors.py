"""Folders that may not be read or written, full disks, too little memory: one line each, and what can be shown is."""

import builtins
import errno
import os
import re
import resource
import shutil
import sys
from pathlib import Path

import pytest

from conf.error_messages import explain
from erasure.store.cache import Cache
from harness.run_directory import Run
from mdl.__main__ import COMMAND as MDL
from scripts.manage_sweep.__main__ import main as sweep
from scripts.report import main as report
from tests.processes import answer

TINY = ["model=linear", "train=quick", "train.max_epochs=1", "mdl.num_chunks=2", "seeds=[0]", "logger.mode=disabled"]
REPOSITORY = Path(__file__).parents[2]


def refuse_writing(monkeypatch: pytest.MonkeyPatch, folder: Path, number: int) -> None:
    """Have every attempt to make a file or folder below `folder` fail, as on a disk that is full or somebody else's."""
    below = str(folder.resolve())

    def refused(function, is_write):
        def call(path, *args, **kwargs):
            text = str(path) if isinstance(path, (str, os.PathLike)) else ""
            if os.path.abspath(text).startswith(below) and is_write(args, kwargs):  # noqa: PTH100
                raise OSError(number, os.strerror(number), text)
            return function(path, *args, **kwargs)

        return call

    def writes(args: tuple, kwargs: dict) -> bool:
        flags = args[0] if args else kwargs.get("mode", kwargs.get("flags", "r"))
        return bool(flags & (os.O_WRONLY | os.O_RDWR)) if isinstance(flags, int) else any(c in flags for c in "wax+")

    def always(args: tuple, kwargs: dict) -> bool:
        return True

    monkeypatch.setattr(os, "mkdir", refused(os.mkdir, always))
    monkeypatch.setattr(os, "open", refused(os.open, writes))
    monkeypatch.setattr(builtins, "open", refused(builtins.open, writes))
    monkeypatch.setattr("io.open", refused(builtins.open, writes))


def last_line(err: str) -> str:
    assert "Traceback" not in err
    return err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "free some"),
        (errno.EACCES, "ask its owner for access, or choose others with runs_dir=FOLDER"),
    ],
)
@pytest.mark.parametrize("sweeps", [[], ["-m"]], ids=["run", "sweep"])
def test_a_run_that_cannot_start_is_one_line(
    command, tmp_path: Path, monkeypatch, number: int, said: str, sweeps: list[str]
) -> None:
    (tmp_path / "runs").mkdir()
    refuse_writing(monkeypatch, tmp_path / "runs", number)
    outcome = command(MDL, *sweeps, *TINY)
    assert outcome.code == 1
    assert said in last_line(outcome.err)
    assert ("runs/sweeps/mdl-" if sweeps else "runs/mdl-digits-leace-linear-") in last_line(outcome.err)


@pytest.mark.parametrize("folder", ["/proc/foo", "taken"])
@pytest.mark.parametrize("key", ["runs_dir", "cache_dir"])
@pytest.mark.parametrize("sweeps", [[], ["-m"]], ids=["run", "sweep"])
def test_a_folder_that_cannot_be_made_is_one_line_with_its_key(command, folder: str, key: str, sweeps: list) -> None:
    Path("taken").write_text("")
    outcome = command(MDL, *sweeps, *TINY, f"{key}={folder}")
    assert outcome.code == 2
    reason = "File exists" if folder == "taken" else "No such file or directory"
    said = f"{key}={folder}: cannot be made ({reason}): choose another folder, {key}=FOLDER"
    assert last_line(outcome.err) == said


def test_a_disk_that_fills_up_while_a_run_fails_hides_no_error(tmp_path: Path, monkeypatch) -> None:
    run = Run(tmp_path, "x")
    run.start("a: 1\n")
    refuse_writing(monkeypatch, tmp_path, errno.ENOSPC)
    run.fail(ValueError("what happened"))


def test_a_finished_run_of_somebody_else_is_shown_and_a_sweep_there_is_refused(
    command, tmp_path: Path, monkeypatch, capsys
) -> None:
    both = ["-m", *TINY, "eraser=control,leace"]
    for words in (both, [*TINY, "eraser=control"]):
        assert command(MDL, *words).code == 0
    for folder in Path("runs").glob("mdl-*"):
        (folder / "step-10.json").write_text("left over")
    refuse_writing(monkeypatch, tmp_path / "runs", errno.EACCES)
    sweep_again = command(MDL, *both)
    assert sweep_again.code == 1
    assert re.match(r"runs/sweeps/\S+: Permission denied; ask its owner for access", last_line(sweep_again.err))
    for eraser, code in (("control", 0), ("leace", 1)):  # as a part of the sweep, the latter has no tables of its own
        alone = command(MDL, *TINY, f"eraser={eraser}")
        assert alone.code == code
        assert "bits per label" in alone.out
        assert ("not all tables and figures are written: runs/" in alone.err) == bool(code)
    capsys.readouterr()
    assert sweep(["status", "runs", "--", *both]) == 0
    assert "2 runs: 2 finished" in capsys.readouterr().out
    assert report(["runs", "--out", "runs/report"]) == 1
    message = last_line(capsys.readouterr().err)
    assert re.fullmatch(
        r"no whole report: runs/report.*: Permission denied; ask its owner for access; or another folder for it with "
        "--out",
        message,
    )


def test_a_disk_that_fills_up_while_a_figure_is_drawn_is_one_line(command, real_figures, monkeypatch) -> None:
    """The result is there; that the rest is not has an exit code."""
    assert command(MDL, *TINY).code == 0
    (run,) = Path("runs").glob("mdl-*")
    for name in ("table.md", "comparison.png"):
        (run / name).unlink()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an import would leave half a file for all later ones
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))  # less than a figure takes
    try:
        outcome = command(MDL, *TINY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert outcome.code == 1
    assert "results are saved, but not all tables and figures are written: " in last_line(outcome.err)
    assert "File too large" in last_line(outcome.err)
    assert not (run / "comparison.png").exists()
    assert command(MDL, *TINY).code == 0


def fetch_as_nobody(folder: Path) -> str:
    os.setgid(65534)
    os.setuid(65534)
    try:
        Cache(folder).fetch("key", lambda: ({}, {}))
    except OSError as error:
        return explain(error, "")
    return ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be somebody else")
def test_a_cache_entry_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    """Permissions do not bind root, so that another user asks."""
    folder = Path("/var/tmp") / f"cache-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        (folder / "key.safetensors").write_bytes(b"secret")
        (folder / "key.safetensors").chmod(0o600)
        message = answer(fetch_as_nobody, folder)
        assert message.startswith(f"{folder / 'key.safetensors'}: Permission denied; ask its owner for access")
    finally:
        shutil.rmtree(folder)
