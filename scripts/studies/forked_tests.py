"""Run tests on a changed source, in processes forked from one that has imported the libraries that take seconds."""

import contextlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SURVIVED, KILLED, ENDLESS = "survived", "killed", "timed out"
_WALL = 20  # a busy machine gives a process so much less than a core


@dataclass(frozen=True)
class Trial:
    """Tests to run, of these files or of these names with their CPU seconds, on a module's changed source."""

    files: tuple[str, ...]
    limit_s: float
    tests: Mapping[str, float] | None = None
    module: str = ""
    source: str = ""


@dataclass(frozen=True)
class Tried:
    """What came of it: the first test that failed, and CPU seconds of those that passed before."""

    outcome: str
    by: str
    seconds: float
    passed: Mapping[str, float]


_tree = Path()  # a worker's own


def begin(root: Path, scratch: str) -> None:
    """Copy the tree: a worker's changes are its own."""
    global _tree
    _tree = Path(tempfile.mkdtemp(dir=scratch))
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(listed, cwd=root, text=True).split("\0"):
        if name and (root / name).is_file():
            (_tree / name).parent.mkdir(parents=True, exist_ok=True)
            (_tree / name).write_bytes((root / name).read_bytes())


def try_tests(trial: Trial) -> Tried:
    """Run the tests until one fails, on the changed source."""
    started = time.monotonic()
    with _changed(trial):
        outcome = _forked(trial) if trial.files else SURVIVED
    notes = [json.loads(line) for line in _notes().read_text().splitlines()] if trial.files else []
    passed = {name: seconds for name, good, seconds in notes if good}
    failed = [name for name, good, _ in notes if not good]
    return Tried(outcome, failed[0] if failed else "", time.monotonic() - started, passed)


@contextlib.contextmanager
def _changed(trial: Trial) -> Iterator[None]:
    if not trial.module:
        yield
        return
    path = _tree / trial.module
    original = path.read_text()
    try:
        _write(path, trial.source)
        yield
    finally:
        _write(path, original)


def _write(path: Path, source: str) -> None:
    """Python takes a source of the same size and second for the one that it has compiled."""
    path.write_text(source)
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()


def _notes() -> Path:
    return _tree / "notes.jsonl"


def _forked(trial: Trial) -> str:
    _notes().write_text("")
    child = os.fork()
    if child == 0:
        os.setsid()
        os._exit(_run(trial))
    code, until = None, time.monotonic() + _WALL * trial.limit_s
    while code is None and time.monotonic() < until:
        time.sleep(0.02)
        pid, status = os.waitpid(child, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if pid else None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # and what the tests left running
    if code is None:
        os.waitpid(child, 0)
    endless = code in (None, -signal.SIGXCPU, -signal.SIGKILL)
    return SURVIVED if code == 0 else ENDLESS if endless else KILLED


def _run(trial: Trial) -> int:
    """In a process of its own: run pytest in the copy of the tree, on modules that nobody has imported yet."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(trial.limit_s), int(trial.limit_s) + 5))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.chdir(_tree)
    packages = {path.stem for path in _tree.iterdir()}
    for name in [name for name in sys.modules if name.split(".")[0] in packages]:
        del sys.modules[name]
    sys.path[:] = [str(_tree), *(entry for entry in sys.path if not Path(entry, "scripts", "studies").is_dir())]
    os.environ["PYTHONPATH"] = str(_tree)
    pytest = importlib.import_module("pytest")
    flags = ["-p", "no:xdist", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
    until = ["-x"] if trial.module else []
    return int(pytest.main([*flags, *until, f"--basetemp={_tree / 'tmp'}", *trial.files], plugins=[_Witness(trial)]))


class _Witness:
    """A pytest plugin: cheap tests first, a note of each, and no search for a smaller counterexample."""

    def __init__(self, trial: Trial) -> None:
        self.tests = trial.tests
        self.begun = 0.0

    def pytest_collection(self) -> None:
        settings, phase = (getattr(importlib.import_module("hypothesis"), name) for name in ("settings", "Phase"))
        settings.register_profile("first failure", settings(phases=[phase.explicit, phase.generate]))
        settings.load_profile("first failure")

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        tests = self.tests
        if tests is not None:
            items[:] = sorted((item for item in items if item.nodeid in tests), key=lambda item: tests[item.nodeid])

    def pytest_runtest_logstart(self) -> None:
        self.begun = sum(os.times()[:4])

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed or report.when == "teardown":
            note = [report.nodeid, not report.failed, round(sum(os.times()[:4]) - self.begun, 3)]
            with _notes().open("a") as notes:
                notes.write(json.dumps(note) + "\n")

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.pytest_runtest_logreport(report)
