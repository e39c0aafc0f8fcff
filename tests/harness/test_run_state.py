"""The state of a run, read from its files alone, whoever wrote them."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import torch

from erasure.store.lease_holder import file_system_time
from harness.run_directory import LOCK, Run, Tensors
from harness.run_state import expected_time, state_of
from tests.made_up_runs import MADE_UP, made_up


def test_the_state_of_a_run_that_is_no_folder_of_files(tmp_path: Path) -> None:
    run = Run(tmp_path, MADE_UP)
    run.start("a: 1\n")
    (tmp_path / "link").symlink_to(run.directory)
    assert state_of(tmp_path / "link", 0).detail.startswith("a link, which is not followed")
    for name in ("run.lock", "state.json"):
        (run.directory / name).unlink(missing_ok=True)
        os.mkfifo(run.directory / name)
    assert "no regular file" in state_of(run.directory, 1e12).detail
    os.mkfifo(run.directory / "result.json")
    assert "no regular file" in state_of(run.directory, 0).detail


def test_the_result_of_another_run_finishes_none(tmp_path: Path) -> None:
    run = Run(tmp_path, MADE_UP)
    run.finish(made_up())
    run.directory.rename(tmp_path / "y")
    state = state_of(tmp_path / "y", 0)
    assert state.name == "failed"
    assert f"result.json is of the run {MADE_UP}: give its directory that name" in state.detail


def test_states_come_from_files_alone(tmp_path: Path) -> None:
    def state(identity: str) -> tuple[str, str]:
        run_state = state_of(tmp_path / identity, file_system_time(tmp_path))
        return run_state.name, run_state.detail

    assert state("never") == ("missing", "")
    run = Run(tmp_path, MADE_UP)
    with run.claim():
        run.start("a: 1\n")
        for n in (100, 200):  # as the published procedure names its steps: a training size and a seed
            for seed in range(5):
                run.step(f"{n}-{seed}", dict)
        run.step("retraining-0-0", lambda: Tensors({"change": torch.zeros(2)}))
        name, detail = state(MADE_UP)
        assert name == "running"
        assert f"process {os.getpid()}" in detail
        assert detail.endswith("heartbeat 0 s ago, steps finished: 11")
    assert state(MADE_UP) == ("interrupted", "killed")
    lock = run.directory / LOCK
    lock.write_text(json.dumps({"token": "x", "host": "node7", "pid": 12}))
    assert state(MADE_UP)[0] == "running"
    for years in (-1, 1):  # a heartbeat in the future is of a wrong clock
        os.utime(lock, (1.0, time.time() + years * 3e7))
        assert state(MADE_UP) == ("interrupted", "killed: process 12 on node7 is gone")
    run.fail(RuntimeError("it\n broke"))
    assert state(MADE_UP) == ("failed", "RuntimeError: it broke")
    run.fail(KeyboardInterrupt())
    assert state(MADE_UP) == ("interrupted", "stopped by Ctrl-C; launch it again to continue")
    (run.directory / "state.json").write_text("{")
    assert state(MADE_UP)[0] == "failed"
    lock.unlink()
    run.finish(made_up())
    assert state(MADE_UP) == ("finished", "")


def test_the_expected_time_of_a_sweep_is_that_of_finished_runs_of_the_same_kind(tmp_path: Path) -> None:
    code = "00000000-00000000"
    sweep = [
        tmp_path / f"train-digits-{eraser}-{model}-{code}"
        for model in ("mlp", "lenet")
        for eraser in ("control", "leace")
    ]
    assert expected_time([tmp_path / "none" / f"train-digits-control-mlp-{code}"]) == ""
    assert expected_time(sweep) == ""
    for name, seconds in ((f"train-digits-qleace-mlp-{code}", 100.0), (f"train-mnist-leace-lenet-{code}", 9.0)):
        run, result = Run(tmp_path, name), made_up(name)
        run.finish(replace(result, timing=replace(result.timing, seconds=seconds)))
    expected = "2 runs: about 3:20 of computing, as finished runs of their dataset and model took; no estimate for 2"
    assert expected_time(sweep) == expected
