"""A lease has one holder; it outlives neither its process nor its heartbeat, and needs no flock."""

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import erasure
from erasure.store.lease import Lease, LeaseLostError
from erasure.store.lease_holder import heartbeat
from tests.processes import PROCESSES

NEVER_S = 3600.0


def abandoned(path: Path, *, pid: int = 1, **differing: object) -> str:
    """Write the lock file of a holder that never beats, of this machine but for `differing`; returns its content."""
    ours = Lease(path.with_name("ours"))
    with ours:
        content = json.loads(ours.path.read_text())
    path.write_text(json.dumps(content | {"token": "somebody else's", "pid": pid} | differing))
    return path.read_text()


def dead_pid() -> int:
    """The number of a process that has ended."""
    process = PROCESSES.Process(target=os.getpid)
    process.start()
    process.join()
    assert process.pid is not None
    return process.pid


def wait_for_takeover(lease: Lease, timeout_s: float = 10.0) -> float:
    """Seconds until the lease was ours."""
    started = time.monotonic()
    while not lease.try_acquire():
        assert time.monotonic() - started < timeout_s, "not taken over"
        time.sleep(0.01)
    return time.monotonic() - started


def test_one_holds_it_and_the_next_only_after_release(tmp_path: Path) -> None:
    first, second = Lease(tmp_path / "lock"), Lease(tmp_path / "lock")
    assert first.try_acquire()
    assert not second.try_acquire()
    assert not first.try_acquire()
    assert first.holder() == second.holder() == f"process {os.getpid()} on {socket.gethostname()}"
    first.release()
    assert list(tmp_path.iterdir()) == []
    assert second.try_acquire()
    assert not first.try_acquire()
    second.release()


def test_of_many_threads_one_at_a_time_is_inside(tmp_path: Path) -> None:
    inside, most, entered = 0, 0, 0

    def enter() -> None:
        nonlocal inside, most, entered
        with Lease(tmp_path / "lock"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.005)
            entered += 1
            inside -= 1

    threads = [threading.Thread(target=enter) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, entered) == (1, 8)


def test_a_heartbeat_that_stops_is_taken_over_but_not_before_it_is_stale(tmp_path: Path, caplog) -> None:
    path = tmp_path / "lock"
    abandoned(path, host="elsewhere")
    with caplog.at_level(logging.WARNING):
        took_s = wait_for_takeover(lease := Lease(path, stale_after_s=0.4))
    assert took_s >= 0.4
    assert "process 1 on elsewhere left lock behind; taking over" in caplog.text
    assert lease.holder() == f"process {os.getpid()} on {socket.gethostname()}"
    lease.release()
    assert list(tmp_path.iterdir()) == []


def test_clocks_of_other_machines_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    for written in (0.0, time.time() + 1e6):
        abandoned(path, host="elsewhere")
        os.utime(path, (written, written))
        lease, started = Lease(path, stale_after_s=0.3), time.monotonic()
        assert not lease.try_acquire()
        wait_for_takeover(lease)
        assert time.monotonic() - started >= 0.3
        lease.release()


def test_a_beating_heart_keeps_the_lease_past_the_stale_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder, waiter = Lease(path, stale_after_s=2.0), Lease(path, stale_after_s=2.0)
    assert holder.try_acquire()
    until = time.monotonic() + 4.0
    while time.monotonic() < until:
        assert not waiter.try_acquire()
        time.sleep(0.02)
    holder._stop.set()  # the negative control: the same waiter, once the heart has stopped
    assert wait_for_takeover(waiter) > 0
    waiter.release()


@pytest.mark.parametrize("differing", ["host", "boot", "namespaces"])
def test_a_dead_process_number_says_nothing_about_another_machine_boot_or_container(tmp_path: Path, differing) -> None:
    path, pid = tmp_path / "lock", dead_pid()
    assert json.loads(abandoned(path, pid=pid))[differing], "this system's /proc does not say"
    abandoned(path, pid=pid, **{differing: "another"})
    assert not Lease(path, stale_after_s=NEVER_S).try_acquire()
    abandoned(path, pid=pid)
    lease = Lease(path, stale_after_s=NEVER_S)
    assert lease.try_acquire()
    lease.release()


def test_a_lock_file_that_does_not_name_boot_and_container_has_its_heartbeat(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text(json.dumps({"token": "a", "host": socket.gethostname(), "pid": dead_pid()}))
    assert not Lease(path, stale_after_s=NEVER_S).try_acquire()


def test_a_number_that_another_process_has_by_now_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    abandoned(path, pid=os.getppid(), started=1)
    lease = Lease(path, stale_after_s=NEVER_S)
    assert lease.try_acquire()
    lease.release()
    abandoned(path, pid=os.getpid())  # the negative control: this very process
    assert not Lease(path, stale_after_s=NEVER_S).try_acquire()


# without erasure/__init__.py, which imports torch
LEASE = f"""
import sys, time, types
from pathlib import Path
sys.modules["erasure"] = types.ModuleType("erasure")
sys.modules["erasure"].__path__ = [{str(Path(erasure.__file__).parent)!r}]
from erasure.store.lease import Lease
"""
HOLD = f"""{LEASE}
assert Lease(Path(sys.argv[1])).try_acquire()
print("held", flush=True)
time.sleep(60)
"""
TAKE = f"""{LEASE}
sys.exit(Lease(Path(sys.argv[1])).try_acquire())
"""


def start_holder(path: Path, *before: str) -> subprocess.Popen[str]:
    words = [*before, sys.executable, "-c", HOLD, str(path)]
    holder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    if holder.stdout.readline() != "held\n":
        holder.wait()
        pytest.skip("no new PID namespace may be made here")
    return holder


def test_a_killed_holder_whom_nobody_has_waited_for_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = start_holder(path)
    waiter = Lease(path, stale_after_s=NEVER_S)
    assert not waiter.try_acquire()
    holder.kill()
    while "State:\tZ" not in Path(f"/proc/{holder.pid}/status").read_text():
        time.sleep(0.01)
    assert waiter.try_acquire()
    waiter.release()
    holder.wait()


@pytest.mark.skipif(shutil.which("unshare") is None, reason="util-linux makes the namespaces")
@pytest.mark.parametrize("proc", [["--mount-proc"], []], ids=["own /proc", "the host's /proc"])
def test_a_live_holder_in_a_container_is_not_taken_over(tmp_path: Path, proc: list[str]) -> None:
    """Its number, 1, or that of a process that is gone here, is no news of it; nor the other way round."""
    path = tmp_path / "lock"
    contained = ["unshare", "--pid", "--fork", "--kill-child", *proc]
    holder = start_holder(path, *contained)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pid": dead_pid()}))
    assert not Lease(path, stale_after_s=NEVER_S).try_acquire()
    assert subprocess.run([*contained, sys.executable, "-c", TAKE, str(path)], check=False).returncode == 0
    holder.kill()
    holder.wait()


def test_release_leaves_another_holders_lease_alone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = Lease(path)
    assert first.try_acquire()
    path.unlink()
    theirs = abandoned(path, host="elsewhere")
    first.release()
    assert path.read_text() == theirs
    Lease(path).release()
    assert path.read_text() == theirs


def test_of_two_that_find_a_dead_holder_the_slower_leaves_the_faster_in_place(tmp_path: Path, monkeypatch) -> None:
    """Between the slower one's look and its rename, the faster one takes over and is at work."""
    path = tmp_path / "lock"
    abandoned(path, pid=dead_pid())
    faster, slower = Lease(path, stale_after_s=NEVER_S), Lease(path, stale_after_s=NEVER_S)
    rename, overtaken = Path.rename, []

    def overtake(self: Path, target: Path) -> Path:
        if not overtaken:
            overtaken.append(True)
            assert faster.try_acquire()
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", overtake)
    assert not slower.try_acquire()
    assert overtaken
    beat = heartbeat(faster.path)
    assert beat is not None
    assert beat.process["token"] == faster._token
    assert not slower.try_acquire()
    faster.release()
    assert list(tmp_path.iterdir()) == []


def test_a_holder_that_wakes_up_while_it_is_taken_over_keeps_the_lease(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "lock"
    theirs = abandoned(path, host="elsewhere")
    waiter = Lease(path, stale_after_s=0.1)
    assert not waiter.try_acquire()
    time.sleep(0.2)
    rename = Path.rename

    def beat(self: Path, target: Path) -> Path:
        os.utime(self, (1.0, 1.0))
        monkeypatch.setattr(Path, "rename", rename)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", beat)
    assert not waiter.try_acquire()
    assert path.read_text() == theirs
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"token": "a", "host',
        b"\xff\xfe\x00",
        b"[]",
        b"[" * 60_000,
        b"{}",
        b'{"token": "a", "host": "HOST"}',
        b'{"token": "a", "host": "HOST", "pid": "none"}',
        b'{"token": "a", "host": "HOST", "pid": 1000000000000000000000000000000}',
        b'{"token": "a", "host": "HOST", "pid": -1}',
    ],
)
def test_a_lock_file_that_says_nothing_is_waited_for_and_then_taken(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lock"
    path.write_bytes(content.replace(b"HOST", socket.gethostname().encode()))
    lease, started = Lease(path, stale_after_s=0.15), time.monotonic()
    assert not lease.try_acquire()  # its holder may be about to write
    assert lease.holder() == "nobody known"
    lease.release()
    assert path.exists()
    wait_for_takeover(lease)
    assert time.monotonic() - started >= 0.15
    lease.release()
    assert list(tmp_path.iterdir()) == []


def test_who_waits_long_says_for_whom(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first, second = Lease(tmp_path / "lock", stale_after_s=60), Lease(tmp_path / "lock", stale_after_s=60)
    assert first.try_acquire()
    threading.Timer(2.5, first.release).start()
    with second:
        pass
    assert caplog.text.count(f"waiting for {tmp_path / 'lock'}, held by process {os.getpid()}") == 1


def test_a_lease_whose_file_is_gone_is_lost(tmp_path: Path) -> None:
    lease = Lease(tmp_path / "lock")
    lease.acquire()
    (tmp_path / "lock").unlink()
    with pytest.raises(LeaseLostError, match="was deleted while it was held"):
        lease.require()
    lease.release()


def test_a_signal_while_the_lock_file_is_written_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty lock file names nobody: who came next waited until it was stale."""

    def interrupted() -> dict[str, object]:
        raise KeyboardInterrupt

    monkeypatch.setattr("erasure.store.lease.this_process", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Lease(tmp_path / "lock").try_acquire()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert Lease(tmp_path / "lock").try_acquire()


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


def test_a_lock_that_a_waiting_process_moves_and_puts_back_is_still_held(tmp_path: Path) -> None:
    path, aside = tmp_path / "lock", tmp_path / "aside"
    with Lease(path) as lease:
        path.rename(aside)
        threading.Timer(0.02, aside.rename, [path]).start()
        lease.require()
