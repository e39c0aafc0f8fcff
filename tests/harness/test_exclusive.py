"""One process at a time computes a run; one that was taken for dead writes nothing more; nothing is left over."""

import functools
import json
import logging
import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

from erasure.store.heartbeat import file_system_time
from erasure.store.lease import Lease, LeaseLostError
from harness.interruption import interruptible
from harness.run_directory import LOCK, Run
from harness.run_state import state_of
from tests.made_up_runs import made_up
from train.checkpoint import Checkpoints


def test_the_second_task_waits_and_finds_the_result(tmp_path: Path) -> None:
    first, second, events = Run(tmp_path, "x"), Run(tmp_path, "x"), []

    def later() -> None:
        with second.claim():
            events.append(second.result)

    waiting = threading.Thread(target=later)
    with first.claim():
        first.start("a: 1\n")
        waiting.start()
        time.sleep(0.3)
        events.append("still computing")
        first.finish(made_up("x"))
    waiting.join()
    assert events == ["still computing", made_up("x")]
    assert sorted(path.name for path in first.directory.iterdir()) == ["config.yaml", "result.json", "state.json"]


def test_who_was_taken_for_dead_writes_nothing_more(tmp_path: Path) -> None:
    run = Run(tmp_path, "x")

    def compute() -> None:
        with run.claim():
            run.start("a: 1\n")
            lock = run.directory / LOCK
            lock.write_text(json.dumps({"token": "theirs", "host": "node7", "pid": 12}))
            before = {path.name: path.read_text() for path in run.directory.iterdir()}
            for write in (
                lambda: run.step("10", lambda: {}),
                lambda: run.save_curves([]),
                lambda: run.finish(made_up()),
                lambda: run.start(""),
            ):
                with pytest.raises(LeaseLostError, match="process 12 on node7 has taken over"):
                    write()
            run.fail(LeaseLostError("taken over"))
            assert {path.name: path.read_text() for path in run.directory.iterdir()} == before

    compute()
    assert (run.directory / LOCK).exists()  # the other's


def test_a_heart_that_was_taken_over_does_not_beat_for_the_other(tmp_path: Path, caplog) -> None:
    lease = Lease(tmp_path / "lock", stale_after_s=0.2)
    assert lease.try_acquire()
    lease.path.write_text(json.dumps({"token": "theirs", "host": "node7", "pid": 12}))
    os.utime(lease.path, (1.0, 1.0))
    with caplog.at_level(logging.WARNING):
        deadline = time.monotonic() + 30
        while "stepping aside" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.02)
    assert "stepping aside" in caplog.text
    assert lease.path.stat().st_mtime == 1.0
    lease.release()
    assert lease.path.exists()


def test_what_a_process_leaves_that_dies_after_its_result_is_tidied_away(tmp_path: Path) -> None:
    run = Run(tmp_path, "x")
    run.start("a: 1\n")
    run.finish(made_up("x"))
    (run.directory / ".result.json.ab.tmp").mkdir()
    for name in ("part-10.json", "checkpoint-10-0.3.safetensors", ".result.json.ab.tmp/x", f"{LOCK}.taken"):
        (run.directory / name).touch()
    with Lease(tmp_path / "lock") as lease:
        gone = json.loads(lease.path.read_text()) | {"pid": 2**22 + 1}
    (run.directory / LOCK).write_text(json.dumps(gone))
    run.tidy()
    assert sorted(path.name for path in run.directory.iterdir()) == ["config.yaml", "result.json", "state.json"]


def test_states_come_from_files_alone(tmp_path: Path) -> None:
    def state(identity: str) -> tuple[str, str]:
        run_state = state_of(tmp_path / identity, file_system_time(tmp_path))
        return run_state.name, run_state.detail

    assert state("never") == ("missing", "")
    run = Run(tmp_path, "x")
    with run.claim():
        run.start("a: 1\n")
        run.step("100", lambda: {})
        name, detail = state("x")
        assert name == "running"
        assert f"process {os.getpid()}" in detail
        assert "heartbeat 0 s ago, 1 training sizes done" in detail
    assert state("x") == ("interrupted", "killed")
    lock = run.directory / LOCK
    lock.write_text(json.dumps({"token": "x", "host": "node7", "pid": 12}))
    assert state("x")[0] == "running"
    os.utime(lock, (1.0, time.time() - 1000))
    assert state("x") == ("interrupted", "killed: process 12 on node7 is gone")
    run.fail(RuntimeError("it\n broke"))
    assert state("x") == ("failed", "RuntimeError: it broke")
    run.fail(KeyboardInterrupt())
    assert state("x")[0] == "interrupted"
    (run.directory / "state.json").write_text("{")
    assert state("x")[0] == "failed"
    lock.unlink()
    run.finish(made_up("x"))
    assert state("x") == ("finished", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT])
def test_at_once_a_signal_ends_the_block_as_an_exception(number: signal.Signals, request) -> None:
    expected = KeyboardInterrupt if number == signal.SIGINT else SystemExit
    default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL  # a shell's & ignores SIGINT
    request.addfinalizer(functools.partial(signal.signal, number, signal.signal(number, default)))

    def block() -> None:
        with interruptible(at_once=True):
            signal.raise_signal(number)
            raise AssertionError("went on")

    with pytest.raises(expected) as ended:
        block()
    if isinstance(ended.value, SystemExit):
        assert ended.value.code == 128 + number


def test_a_block_that_waits_takes_precedence_and_delivers_to_the_one_around_it() -> None:
    order = []

    def block() -> None:
        with interruptible(at_once=True), interruptible() as waiting:
            signal.raise_signal(signal.SIGUSR1)
            order.append(waiting.pending)
            waiting.deliver()
            order.append("went on")

    with pytest.raises(SystemExit):
        block()
    assert order == [signal.SIGUSR1]


def test_who_was_taken_for_dead_saves_no_checkpoint(tmp_path: Path) -> None:
    run = Run(tmp_path, "x")
    with run.claim():
        run.start("a: 1\n")
        checkpoints = Checkpoints(run.directory, 1.0, run.require_lease)
        checkpoints.save("10-0", ({"w": torch.zeros(2)}, {"epoch": 1}))
        (run.directory / LOCK).write_text(json.dumps({"token": "theirs", "host": "node7", "pid": 12}))
        with pytest.raises(LeaseLostError, match="process 12 on node7 has taken over"):
            checkpoints.save("10-0", ({"w": torch.ones(2)}, {"epoch": 2}))
    assert [path.name for path in run.directory.glob("checkpoint-*")] == ["checkpoint-10-0.1.safetensors"]
