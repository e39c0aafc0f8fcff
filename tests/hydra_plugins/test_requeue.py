"""Signals that requeue a task, and signals that end it."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hydra_plugins.erasure_mdl.slurm import requeue_on_signals

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


@pytest.fixture
def requeued() -> Iterator[list[int]]:
    """Signals that submitit's own handler was called with; handlers are put back."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    calls: list[int] = []
    signal.signal(signal.SIGUSR2, lambda number, _: calls.append(number))
    signal.signal(signal.SIGTERM, lambda *_: None)  # submitit ignores it
    yield calls
    for number, handler in before.items():
        signal.signal(number, handler)


def in_slurm(monkeypatch: pytest.MonkeyPatch, folder: Path, state: str | None) -> Path:
    """Pretend to be task 3 of array 7 in this state, of a cluster without squeue if None; what squeue is asked."""
    asked = folder / "asked"
    if state is not None:
        squeue = folder / "squeue"
        squeue.write_text(f"#!/bin/sh\necho $* >> {asked}\necho {state}\n")
        squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    for name, value in {"SUBMITIT_EXECUTOR": "slurm", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}.items():
        monkeypatch.setenv(name, value)
    return asked


@pytest.mark.parametrize("number", SIGNALS)
def test_any_of_three_signals_requeues_and_what_follows_is_ignored(number: signal.Signals, requeued) -> None:
    requeue_on_signals()
    signal.raise_signal(number)
    assert requeued == [number]
    signal.raise_signal(signal.SIGTERM)  # SLURM's own, to the job that has been requeued
    assert requeued == [number]


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETING", "", None])
def test_a_job_that_slurm_is_ending_is_not_requeued(state: str | None, requeued, monkeypatch, tmp_path) -> None:
    asked = in_slurm(monkeypatch, tmp_path, state)
    requeue_on_signals()
    with pytest.raises(SystemExit) as ended:
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert requeued == []
    assert state is None or asked.read_text() == "--noheader --jobs 7_3 --format %T\n"


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED"])
def test_a_job_that_slurm_means_to_run_is_requeued_on_sigterm(state: str, requeued, monkeypatch, tmp_path) -> None:
    in_slurm(monkeypatch, tmp_path, state)
    requeue_on_signals()
    signal.raise_signal(signal.SIGTERM)
    assert requeued == [signal.SIGTERM]
