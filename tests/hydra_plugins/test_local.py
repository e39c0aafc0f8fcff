"""Sweeps in several processes of this machine."""

import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import submitit
import torch

from harness.run_directory import LOCK
from mdl.__main__ import COMMAND as MDL
from tests.conftest import REPOSITORY
from tests.hydra_plugins.conftest import LOCAL, TINY

SAVED = ["train.patience_steps=100000000", "train.checkpoint_every_s=0.1"]


class Executor:
    """In place of submitit's: processes that end at once, and what each would start with."""

    def __init__(self) -> None:
        self.devices: list[str] = []
        self.threads: list[str] = []
        self.interrupts: list[object] = []

    def __call__(self, *_: object, **__: object) -> "Executor":
        return self

    def update_parameters(self, **_: object) -> None: ...

    def submit(self, work: Callable, *arguments: Any) -> SimpleNamespace:
        self.threads.append(os.environ["OMP_NUM_THREADS"])
        self.interrupts.append(signal.getsignal(signal.SIGINT))  # what a child process starts with
        before = os.environ.get("CUDA_VISIBLE_DEVICES"), signal.getsignal(signal.SIGTERM)
        device, _, state = arguments
        work(device, [], state)  # as the process does, without a run
        self.devices.append(os.environ["CUDA_VISIBLE_DEVICES"])
        signal.signal(signal.SIGTERM, before[1])
        if before[0] is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before[0]
        return SimpleNamespace(done=lambda: True, paths=SimpleNamespace(result_pickle=Path(__file__)))


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Executor:
    """Return the resources of a machine with six cores and two GPUs."""
    only = Executor()
    monkeypatch.setattr(submitit, "AutoExecutor", only)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(6))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    return only


@pytest.mark.parametrize("said", ["7", None])
def test_every_process_has_its_threads_and_no_ctrl_c(command, executor: Executor, monkeypatch, said) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    if said:
        monkeypatch.setenv("OMP_NUM_THREADS", said)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it
    try:
        command(MDL, *LOCAL[:2], "hydra.launcher.workers=3", "device=cpu", "train.lr=0.1,0.2,0.3,0.4", *TINY)
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler  # the driver itself can be stopped
    finally:
        signal.signal(signal.SIGINT, before)
    assert executor.threads == [said or "2"] * 3  # of six cores
    assert os.environ.get("OMP_NUM_THREADS") == said
    assert executor.interrupts == [signal.SIG_IGN] * 3


@pytest.mark.parametrize(
    ("device", "visible", "devices"),
    [
        ("cuda", None, ["0", "1", "0"]),
        ("cuda", "4,7,GPU-1a", ["4", "7", "GPU-1a"]),
        ("cpu", "4,7", ["", "", ""]),
    ],
)
def test_every_process_sees_a_device_of_its_own(
    command, executor: Executor, monkeypatch, device: str, visible: str | None, devices: list[str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    command(MDL, *LOCAL[:2], "hydra.launcher.workers=3", f"device={device}", "train.lr=0.1,0.2,0.3", *TINY)
    assert executor.devices == devices


def test_one_device_for_several_processes_is_refused(command, executor: Executor) -> None:
    outcome = command(MDL, *LOCAL, "device=cuda:1", "train.lr=0.1,0.2", *TINY)
    assert outcome.code == 2
    assert "device=cuda:1: hydra/launcher=local gives each process a GPU of its own" in outcome.err
    assert executor.devices == []


@contextlib.contextmanager
def launched(tmp_path: Path, *overrides: str) -> Iterator[subprocess.Popen]:
    """A sweep in two processes, of trainings that save themselves often; what is left of it ends with the block."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it
    with (tmp_path / "driver.log").open("w") as log:
        shell = subprocess.Popen(
            [sys.executable, "-m", "mdl", *LOCAL, *TINY, *SAVED, *overrides, *where(tmp_path)],
            cwd=REPOSITORY, start_new_session=True, stdout=log, stderr=log,
        )  # fmt: skip
    signal.signal(signal.SIGINT, before)
    try:
        yield shell
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)


def where(tmp_path: Path) -> list[str]:
    return [f"runs_dir={tmp_path / 'runs'}", f"cache_dir={tmp_path / 'cache'}"]


def wait_for_trainings(tmp_path: Path, shell: subprocess.Popen, count: int, *, failing: str = "none") -> list[Path]:
    """Wait until so many runs are going on and have saved a training; return their directories.

    A run whose configuration contains the line `failing` does not count: it has ended soon after.
    """
    deadline = time.monotonic() + 120
    while True:
        locked = [lock.parent for lock in tmp_path.glob(f"runs/mdl-*/{LOCK}")]
        saved = [run for run in locked if any(run.glob("checkpoint-*"))]
        runs = [run for run in saved if failing not in (run / "config.yaml").read_text().split("\n")]
        if len(runs) >= count:
            return sorted(runs)
        assert shell.poll() is None, (tmp_path / "driver.log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_ctrl_c_lets_every_process_save_its_training_first(tmp_path: Path) -> None:
    with launched(tmp_path, "eraser=control,leace", "train.max_epochs=100000") as shell:
        runs = wait_for_trainings(tmp_path, shell, 2)
        stopped = time.time()
        os.killpg(shell.pid, signal.SIGINT)  # as a terminal does
        assert shell.wait(60) == 130
    log = (tmp_path / "driver.log").read_text()
    assert "stopping once every run has saved its training" in log
    for run in runs:
        assert any(path.stat().st_mtime >= stopped - 0.01 for path in run.glob("checkpoint-*")), list(run.iterdir())
        assert not (run / LOCK).exists()


def test_neither_a_killed_process_nor_a_run_that_fails_ends_another_run(command, tmp_path: Path, caplog) -> None:
    """Processes take runs in turn: of three runs one fails at once, and the process of another is killed."""
    options = ["eraser=control", "train.max_epochs=100"]
    with launched(tmp_path, *options, "train.lr=1e38,0.005,0.006") as shell:
        run, *_ = wait_for_trainings(tmp_path, shell, 1, failing="  lr: 1.0e+38")
        os.kill(json.loads((run / LOCK).read_text())["pid"], signal.SIGKILL)
        assert shell.wait(240) == 1
    log = (tmp_path / "driver.log").read_text()
    assert "3 runs in 2 processes" in log
    assert log.count("a process ended early: see") == 1
    assert "2 of 3 runs finished, 1 failed" in log
    assert re.search(r"failed: .* train\.lr=1e\+38 .*: the loss is not finite", log)
    assert "bits per label" in log
    assert len([*tmp_path.glob("runs/sweeps/*/error-*.json")]) == 1

    caplog.set_level(logging.INFO)
    again = command(MDL, *LOCAL, *TINY, *SAVED, *options, "train.lr=0.005", *where(tmp_path))
    assert again.code == 0, again.err
    assert "1 of 1 runs have finished before" in caplog.text
    assert "1 processes" not in caplog.text  # none was started
