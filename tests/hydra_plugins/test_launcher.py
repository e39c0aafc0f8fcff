"""Sweeps by every launcher, and in this process."""

import errno
import signal
import threading
from pathlib import Path

import pytest

import harness.experiment
from erasure.store.lease import Lease
from harness.run_directory import LOCK
from harness.sweep_files import Sweep
from mdl.__main__ import COMMAND as MDL
from tests.hydra_plugins.conftest import LOCAL, SLURM, TINY, run_of


def test_what_a_killed_process_left_of_a_finished_run_is_deleted(command) -> None:
    assert command(MDL, "-m", "eraser=control", *TINY).code == 0
    run = run_of("eraser=control", *TINY)
    left, notes = run.directory / "checkpoint-27.safetensors", run.directory / "notes.txt"
    for path in (left, notes):
        path.write_text("")
    assert command(MDL, "-m", "eraser=control", *TINY).code == 0
    assert not left.exists()
    assert notes.exists()


@pytest.mark.parametrize("where", [["hydra.run.dir=elsewhere"], ["-m"]], ids=["run", "sweep"])
def test_paths_are_those_of_the_folder_of_the_launch_wherever_hydra_goes(command, where: list[str]) -> None:
    def hang(*_: object) -> None:
        raise TimeoutError("waits for a run that has finished elsewhere")

    signal.signal(signal.SIGALRM, hang)
    signal.alarm(120)
    try:
        outcome = command(MDL, *where, "hydra.job.chdir=true", "eraser=control", *TINY)
    finally:
        signal.alarm(0)
    assert outcome.code == 0, outcome.err
    assert len([*Path("runs").glob("mdl-*/result.json")]) == 1
    assert [*Path().rglob("result.json")] == [*Path("runs").glob("mdl-*/result.json")]


@pytest.mark.parametrize("how", [["-m"], LOCAL, SLURM], ids=["in_process", "local", "slurm"])
def test_bad_input_anywhere_in_the_sweep_is_refused_before_anything_is_started(command, how) -> None:
    outcome = command(MDL, *how, "train.batch_size=64,0,-1", *TINY)
    assert outcome.code == 2
    (line,) = outcome.err.strip().splitlines()[-1:]
    assert "train.batch_size=0: must be at least 1; nothing was started (as 1 others of the 3)" in line
    unknown = command(MDL, *how, "eraser=control,nope", *TINY)
    assert unknown.code == 2
    assert "unknown eraser=nope: choose from alf_qleace, control" in unknown.err.strip().splitlines()[-1]
    assert not list(Path("runs").glob("mdl-*"))


def test_what_was_edited_while_a_sweep_goes_on_in_this_process_is_not_computed(command, monkeypatch) -> None:
    unchanged = harness.experiment.Experiment.carry_out

    def carry_out(*arguments, **options):
        monkeypatch.setenv("DIGITS", "other")
        return unchanged(*arguments, **options)

    monkeypatch.setenv("DIGITS", "some")
    monkeypatch.setattr("harness.experiment.Experiment.carry_out", carry_out)
    outcome = command(MDL, "-m", "eraser=control,leace", *TINY, "dataset.name=${oc.env:DIGITS}")
    assert outcome.code == 2
    assert "1 of 2 runs finished, 1 failed" in outcome.out
    assert "its configuration, data or code has changed" in outcome.err
    assert [path.name.split("-")[1] for path in Path("runs").glob("mdl-*")] == ["some"]


def test_a_run_that_another_process_has_just_begun_does_not_hold_up_the_others(command, monkeypatch) -> None:
    unchanged, held, carried_out = harness.experiment.Experiment.carry_out, [], []
    timer = threading.Timer(60.0, lambda: held[0].release())  # in case that the sweep waits for it

    def carry_out(experiment, *arguments, **options):
        if not held:  # between this process's look at the first run and its claim
            experiment.run.directory.mkdir(parents=True)
            held.append(Lease(experiment.run.directory / LOCK))
            held[0].acquire()
            timer.start()
        result = unchanged(experiment, *arguments, **options)
        carried_out.append((experiment.config.eraser["name"], result is not None))
        if result is not None:
            timer.cancel()
            held[0].release()
        return result

    monkeypatch.setattr("harness.experiment.Experiment.carry_out", carry_out)
    outcome = command(MDL, "-m", "eraser=control,leace", *TINY)
    assert outcome.code == 0, outcome.err
    assert carried_out == [("control", False), ("leace", True), ("control", True)]


def test_a_sweep_whose_errors_cannot_be_noted_ends(command, monkeypatch) -> None:
    def full(*_) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "error-a.json")

    monkeypatch.setattr(Sweep, "fail", full)
    outcome = command(MDL, "-m", "eraser=control", "train.lr=1e38", *TINY)
    assert outcome.code == 1
    assert "error-a.json: No space left on device" in outcome.err
