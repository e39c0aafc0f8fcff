"""Launchers without a cluster: in this process, over this machine's processes, and SLURM's up to the submission."""

import contextlib
import errno
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hydra.core.plugins import Plugins
from omegaconf import OmegaConf

import harness.job
from conf.check import ConfigError
from conf.sweep_directory import Sweep, SweepJob, process, sweep_name
from harness.run_directory import LOCK, Run
from hydra_plugins.erasure_mdl import jobs
from hydra_plugins.erasure_mdl.jobs import in_turn
from hydra_plugins.erasure_mdl.slurm import _max_array_size
from mdl.__main__ import COMMAND as MDL
from tests.conftest import REPOSITORY
from tests.made_up_runs import made_up

TINY = ["model=linear", "train=quick", "train.max_epochs=2", "mdl.num_chunks=2", "seeds=[0]", "logger.mode=disabled"]
LOCAL = ["-m", "hydra/launcher=local", "hydra.launcher.workers=2"]
SLURM = ["-m", "hydra/launcher=slurm", "device=cpu"]
SAVED = ["train.patience_steps=100000000", "train.checkpoint_every_s=0.1"]


@pytest.fixture
def launcher():
    """A launcher's class by its name, as Hydra knows it: it loads its plugins' modules itself, and anew."""
    return lambda name: Plugins.instance().class_name_to_class[f"hydra_plugins.erasure_mdl.{name}"]


def planned_runs() -> list[Run]:
    """The runs of the sweep that was launched last."""
    return [Run(job.run.parent, job.run.name) for job in process.sweep.planned()]


def finish(job: SweepJob) -> None:
    run = Run(job.run.parent, job.run.name)
    with run.claim():
        run.finish(made_up(run.id))


class Worker:
    """A process that has ended."""

    paths = SimpleNamespace(result_pickle=Path(__file__))  # a file that exists

    def done(self) -> bool:
        return True


@pytest.mark.parametrize("said", ["7", None])
def test_every_process_sees_a_device_of_its_own_its_threads_and_no_ctrl_c(command, launcher, monkeypatch, said) -> None:
    given, seen, handlers, threads = [], [], [], []

    class Executor:
        def submit(self, local, device, directory, jobs, state) -> Worker:
            given.append(device)
            threads.append(os.environ["OMP_NUM_THREADS"])
            handlers.append(signal.getsignal(signal.SIGINT))  # what a child process starts with
            monkeypatch.setattr(process, "waits_for_others", True)
            local(device, directory, [], state)  # as the process does, without a run
            assert not process.waits_for_others
            seen.append(os.environ["CUDA_VISIBLE_DEVICES"])
            return Worker()

    monkeypatch.setattr(launcher("launcher.Local"), "_executor", lambda _: Executor())
    monkeypatch.setattr(launcher("launcher.Local"), "_devices", lambda _: ["3", "5"])
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(6))
    monkeypatch.delenv("OMP_NUM_THREADS")
    if said:
        monkeypatch.setenv("OMP_NUM_THREADS", said)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it
    try:
        command(MDL, "-m", "hydra/launcher=local", "hydra.launcher.workers=3", "train.lr=0.1,0.2,0.3,0.4", *TINY)
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler  # the driver itself can be stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert given == seen == ["3", "5", "3"]
    assert threads == [said or "2"] * 3  # of six cores
    assert os.environ.get("OMP_NUM_THREADS") == said
    assert handlers == [signal.SIG_IGN] * 3


def test_devices_are_those_that_this_process_sees(launcher, monkeypatch) -> None:
    local = object.__new__(launcher("launcher.Local"))
    local.config = OmegaConf.create({"device": "cuda"})
    monkeypatch.setattr("harness.device.pick_device", torch.device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert local._devices() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7,GPU-1a")
    assert local._devices() == ["4", "7", "GPU-1a"]
    local.config.device = "cpu"
    assert local._devices() == [""] * len(os.sched_getaffinity(0))
    local.config.device = "cuda:1"
    with pytest.raises(ConfigError, match="device=cuda:1: hydra/launcher=local gives each process a GPU of its own"):
        local._devices()


def test_what_a_killed_process_left_of_a_finished_run_is_deleted(command) -> None:
    assert command(MDL, "-m", "eraser=control", *TINY).code == 0
    (run,) = planned_runs()
    left, notes = run.directory / "checkpoint-27.safetensors", run.directory / "notes.txt"
    for path in (left, notes):
        path.write_text("")
    assert command(MDL, "-m", "eraser=control", *TINY).code == 0
    assert not left.exists()
    assert notes.exists()


@pytest.mark.parametrize("how", [["-m"], LOCAL, SLURM], ids=["in_process", "local", "slurm"])
def test_bad_input_anywhere_in_the_sweep_is_refused_before_anything_is_started(command, how) -> None:
    outcome = command(MDL, *how, "train.batch_size=64,0,-1", *TINY)
    assert outcome.code == 2
    (line,) = outcome.err.strip().splitlines()[-1:]
    assert "train.batch_size=0: must be at least 1; nothing was started (as 1 others of the 3)" in line
    unknown = command(MDL, *how, "eraser=control,nope", *TINY)
    assert unknown.code == 2
    assert "unknown eraser=nope: choose from alf_cubic, alf_qleace, control" in unknown.err.strip().splitlines()[-1]
    assert not list(Path("runs").glob("mdl-*"))


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


def wait_for_trainings(tmp_path: Path, shell: subprocess.Popen, count: int) -> list[Path]:
    """Wait until so many runs are going on and have saved a training; return their directories."""
    deadline = time.monotonic() + 120
    while True:
        locked = [lock.parent for lock in tmp_path.glob(f"runs/mdl-*/{LOCK}")]
        runs = [run for run in locked if any(run.glob("checkpoint-*"))]
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
    assert max(log.count(f"#{number} has ended") for number in range(2)) <= 1
    for run in runs:
        assert any(path.stat().st_mtime >= stopped - 0.01 for path in run.glob("checkpoint-*")), list(run.iterdir())
        assert not (run / LOCK).exists()


def test_neither_a_killed_process_nor_a_run_that_fails_ends_another_run(
    command, launcher, tmp_path: Path, monkeypatch, caplog
) -> None:
    """Processes take runs in turn: of three runs one fails at once, and the process of another is killed."""
    options = ["eraser=control", "train.max_epochs=300"]
    with launched(tmp_path, *options, "train.lr=1e38,0.005,0.006") as shell:
        run, *_ = wait_for_trainings(tmp_path, shell, 1)
        os.kill(json.loads((run / LOCK).read_text())["pid"], signal.SIGKILL)
        assert shell.wait(240) == 1
    log = (tmp_path / "driver.log").read_text()
    assert "3 runs in 2 processes" in log
    assert log.count("a process ended early: see") == 1
    assert "2 of 3 runs finished, 1 failed" in log
    assert re.search(r"failed: .* train\.lr=1e\+38 .*: the loss is not finite", log)
    assert "bits per label" in log
    assert max(log.count(f"#{number} has ended") for number in range(3)) == 1
    (sweep,) = (tmp_path / "runs" / "sweeps").iterdir()
    assert [Sweep(sweep).failed(job.run.name) for job in Sweep(sweep).planned()] == [True, False, False]

    caplog.set_level(logging.INFO)
    monkeypatch.setattr(launcher("launcher.Local"), "_start", lambda *_: pytest.fail("started"))
    again = command(MDL, *LOCAL, *TINY, *SAVED, *options, "train.lr=0.005", *where(tmp_path))
    assert again.code == 0, again.err
    assert "1 of 1 runs have finished before" in caplog.text


def test_what_was_edited_while_a_sweep_goes_on_in_this_process_is_not_computed(command, monkeypatch) -> None:
    unchanged = harness.job.Execution.carry_out

    def carry_out(*arguments, **options):
        monkeypatch.setenv("DIGITS", "other")
        return unchanged(*arguments, **options)

    monkeypatch.setenv("DIGITS", "some")
    monkeypatch.setattr("harness.job.Execution.carry_out", carry_out)
    outcome = command(MDL, "-m", "eraser=control,leace", *TINY, "dataset.name=${oc.env:DIGITS}")
    assert outcome.code == 2
    assert "1 of 2 runs finished, 1 failed" in outcome.out
    assert "its configuration, data or code has changed" in outcome.err
    assert [path.name.split("-")[1] for path in Path("runs").glob("mdl-*")] == ["some"]


def test_where_the_precision_of_tasks_cannot_be_known_it_has_to_be_said(command) -> None:
    outcome = command(MDL, "-m", "hydra/launcher=slurm", *TINY)
    assert outcome.code == 2
    assert "device=auto: where tasks run there may be another kind of device" in outcome.err.strip().splitlines()[-1]
    assert outcome.err.strip().endswith("nothing was started")


def test_where_there_is_no_slurm_it_says_so_in_one_line(command, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = command(MDL, "-m", "hydra/launcher=slurm", "device=cpu", *TINY)
    assert outcome.code == 2
    assert 'slurm does not take the sweep: Could not detect "srun"' in outcome.err.strip().splitlines()[-1]


def test_a_job_that_was_passed_over_comes_again_until_its_run_has_ended(tmp_path: Path) -> None:
    sweep, given = Sweep(tmp_path / "sweep"), []
    a, b, c = (SweepJob(number, [], tmp_path / name) for number, name in enumerate("abc"))
    sweep.fail("b", "no memory", 1)  # in another process, which may have less
    finish(c)
    for job in in_turn([a, b, c], sweep, join=False):
        given.append(job.number)
        if given != [0]:  # the first time another process was faster
            finish(job)
    assert given == [0, 1, 0]


@pytest.mark.parametrize(("join", "looks"), [(False, 4), (True, 1)])
def test_a_run_that_another_process_computes_comes_last_once_it_is_free_or_is_joined(
    join: bool, looks: int, tmp_path: Path, monkeypatch, caplog
) -> None:
    caplog.set_level(logging.INFO)
    looked, given = [], []  # the first run is free at the fourth look

    def computed_elsewhere(run: Path) -> str:
        looked.extend([run] if run.name == "a" else [])
        return "host" if run.name == "a" and len(looked) < 4 else ""

    monkeypatch.setattr(jobs, "computed_elsewhere", computed_elsewhere)
    monkeypatch.setattr(jobs, "_LOOK_AGAIN_S", 0.0)
    sweep = Sweep(tmp_path / "sweep")
    for job in in_turn([SweepJob(0, [], tmp_path / "a"), SweepJob(1, [], tmp_path / "b")], sweep, join=join):
        given.append(job.number)
        finish(job)
    assert given == [1, 0]
    assert len(looked) == looks
    assert caplog.messages == ["waiting for 1 runs that other processes compute"] * (not join)


def test_the_size_of_arrays_is_the_clusters_own(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _max_array_size() == 1001
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\necho 'MaxArraySize            = 77'\n")
    scontrol.chmod(0o755)
    assert _max_array_size() == 77


def test_a_cluster_is_not_given_a_run_that_another_process_computes(command, launcher, monkeypatch) -> None:
    monkeypatch.setattr(launcher("slurm.SlurmArray"), "_submit", lambda *_: [])
    command(MDL, *SLURM, *TINY)
    (run,) = planned_runs()
    monkeypatch.setattr(launcher("slurm.SlurmArray"), "_submit", lambda *_: pytest.fail("submitted"))
    with run.claim():
        outcome = command(MDL, *SLURM, *TINY)
    assert outcome.code == 1
    assert "runs already (process" in outcome.err
    assert not (run.directory / LOCK).exists()


def test_a_sweep_may_be_left_to_the_cluster(command, launcher, monkeypatch) -> None:
    monkeypatch.setattr(launcher("slurm.SlurmArray"), "_submit", lambda *_: [])
    outcome = command(MDL, *SLURM, "hydra.launcher.wait=false", "eraser=control,leace", *TINY)
    assert outcome.code == 0, outcome.err
    line = outcome.out.strip().splitlines()[-1]
    assert line.startswith("to look at it: python -m scripts.sweep status ")
    assert line.endswith(" ".join(["-- mdl device=cpu eraser=control,leace", *TINY[:4], "'seeds=[0]'", TINY[-1]]))


def test_more_jobs_than_an_array_may_have_become_several(command, launcher, monkeypatch, caplog) -> None:
    caplog.set_level(logging.INFO)
    arrays = []

    class Executor:
        def map_array(self, _, jobs, states):
            assert len(jobs) == len(states)
            arrays.append([job.number for job in jobs])
            return [type("Task", (), {"job_id": f"{len(arrays)}_{task}"}) for task in range(len(jobs))]

    monkeypatch.setitem(launcher("slurm.SlurmArray")._submit.__globals__, "_max_array_size", lambda: 2)
    monkeypatch.setattr(launcher("slurm.SlurmArray"), "_executor", lambda _: Executor())
    outcome = command(MDL, *SLURM, "hydra.launcher.wait=false", "train.lr=0.001,0.002,0.003,0.004,0.005", *TINY)
    assert outcome.code == 0, outcome.err
    assert arrays == [[0, 1], [2, 3], [4]]
    assert "submitted 5 jobs as 1, 2, 3" in caplog.text

    arrays.clear()
    twice = command(MDL, *SLURM, "hydra.launcher.wait=false", "hydra.launcher.tasks_per_run=2", *TINY, "mdl.share=true")
    assert twice.code == 0, twice.err
    assert arrays == [[0, 0]]
    alone = command(MDL, *SLURM, "hydra.launcher.tasks_per_run=2", *TINY)
    assert alone.code == 2
    assert "tasks_per_run=2: tasks share runs of python -m mdl, where mdl.share=true" in alone.err


def test_a_sweep_whose_errors_cannot_be_noted_ends(command, monkeypatch) -> None:
    def full(*_) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "error-a.json")

    monkeypatch.setattr(Sweep, "fail", full)
    outcome = command(MDL, "-m", "eraser=control", "train.lr=1e38", *TINY)
    assert outcome.code == 1
    assert "error-a.json: No space left on device" in outcome.err


def test_a_sweep_has_one_name_however_and_wherever_it_is_launched() -> None:
    name = sweep_name("mdl", ["eraser=control,leace", "seeds=[0]"])
    assert name.startswith("mdl-")
    elsewhere = ["seeds=[0]", "eraser=control,leace", "hydra/launcher=slurm", "runs_dir=/scratch"]
    assert sweep_name("mdl", elsewhere) == name
    assert sweep_name("mdl", ["eraser=control,leace", "seeds=[1]"]) != name
    assert sweep_name("mdl", ["+experiment=table16"]).startswith("mdl-table16-")
    assert "/" not in sweep_name("mdl", ["+experiment=mine/table"])
