"""The cache builds once, whoever else builds or is killed, and again only what was damaged."""

import json
import logging
import os
import signal
import stat
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
import torch

from erasure.store import atomic_files, checked_files
from erasure.store.cache import Cache, Entry
from erasure.store.checked_files import load_tensors, save_tensors
from erasure.store.lease import Lease
from tests.erasure.store.test_lease import NEVER_S, dead_pid
from tests.processes import PROCESSES, require_killed

NAME = "key.safetensors"


def entry(value: float) -> Entry:
    return {"a": torch.full((1000,), value)}, {"note": "x"}


def test_an_entry_is_built_once(tmp_path: Path) -> None:
    cache, built = Cache(tmp_path / "new"), []

    def build():
        built.append(1)
        return {"a": torch.ones(3)}, {"note": "x"}

    for _ in range(2):
        tensors, metadata = cache.fetch("key", build)
        assert torch.equal(tensors["a"], torch.ones(3))
        assert metadata == {"note": "x"}
    assert len(built) == 1


def flip(content: bytearray) -> bytearray:
    content[-100] ^= 1
    return content


DAMAGE: dict[str, Callable[[bytearray], bytearray]] = {
    "a flipped bit": flip,
    "nothing left": lambda content: bytearray(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_named_set_aside_and_rebuilt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    cache, path = Cache(tmp_path), tmp_path / NAME
    cache.fetch("other", lambda: entry(3))
    cache.fetch("key", lambda: entry(1))
    damaged = bytes(DAMAGE[damage](bytearray(path.read_bytes())))
    path.write_bytes(damaged)
    with caplog.at_level(logging.WARNING):
        tensors, _ = cache.fetch("key", lambda: entry(2))
    assert torch.equal(tensors["a"], entry(2)[0]["a"])
    [aside] = tmp_path.glob("key.damaged-*")
    assert aside.read_bytes() == damaged
    [warning] = caplog.messages
    assert str(path) in warning
    assert f"set aside as {aside.name} and built again" in warning
    assert {path.name for path in tmp_path.iterdir()} == {NAME, "other.safetensors", aside.name}
    caplog.clear()
    assert cache.fetch("key", lambda: pytest.fail("built again"))[0]["a"][0] == 2
    assert caplog.messages == []


def test_a_builder_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        Cache(tmp_path).fetch("key", fail)
    assert list(tmp_path.iterdir()) == []


def build_and_note(key: str, cache: Path, notes: Path) -> Entry:
    """Take a while, and leave a note for whoever counts the builds."""
    (notes / f"{key}-{os.getpid()}").touch()
    assert (cache / f"{key}.lock").exists()
    time.sleep(0.2)
    return entry(os.getpid())


def race(cache: Path, notes: Path, start: Barrier) -> None:
    for key in ("missing", "orphaned", "damaged"):
        start.wait(30)
        tensors, metadata = Cache(cache).fetch(key, lambda key=key: build_and_note(key, cache, notes))
        save_tensors(notes / f"got-{key}-{os.getpid()}", tensors, metadata)


def test_four_processes_that_want_the_same_build_it_once(tmp_path: Path) -> None:
    """Entries that are missing, left behind half-built by a process now dead, or damaged."""
    cache, notes = tmp_path / "cache", tmp_path / "notes"
    notes.mkdir()
    cache.mkdir()
    with Lease(tmp_path / "lock") as lease:
        gone = json.loads(lease.path.read_text()) | {"pid": dead_pid()}
    (cache / "orphaned.lock").write_text(json.dumps(gone))
    (cache / "damaged.safetensors").write_bytes(b"not whole")
    start = PROCESSES.Barrier(4)
    racers = [PROCESSES.Process(target=race, args=(cache, notes, start)) for _ in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
    assert [racer.exitcode for racer in racers] == [0] * 4
    for key in ("missing", "orphaned", "damaged"):
        [built] = notes.glob(f"{key}-*")
        builder = float(built.name.removeprefix(f"{key}-"))
        received = [load_tensors(path) for path in notes.glob(f"got-{key}-*")]
        assert len(received) == 4
        for tensors, metadata in received:
            assert torch.equal(tensors["a"], entry(builder)[0]["a"])
            assert metadata == {"note": "x"}
    left = sorted(path.name for path in cache.iterdir() if ".damaged-" not in path.name)
    assert left == ["damaged.safetensors", "missing.safetensors", "orphaned.safetensors"]
    assert len(list(cache.glob("damaged.damaged-*"))) == 1


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def build_until_killed(cache: Path, point: str) -> None:
    real = checked_files.save_file

    def half(tensors: dict, path: Path, metadata: dict) -> None:
        real(tensors, path, metadata)
        os.truncate(path.rename(path.with_name(".tmpPEVl13")), 1000)  # where safetensors writes before it renames
        die()

    if point == "mid-write":
        checked_files.save_file = half
    elif point == "before-rename":
        Path.replace = die  # pyright: ignore[reportAttributeAccessIssue]
    elif point == "after-rename":
        sync = os.fsync

        def die_with_folders(fd: Any) -> None:
            return die() if stat.S_ISDIR(os.fstat(fd).st_mode) else sync(fd)

        os.fsync = die_with_folders
    Cache(cache).fetch("key", lambda: (die() if point == "mid-build" else None) or entry(1))


@pytest.mark.parametrize(
    ("point", "leftovers", "rebuilt"),
    [("mid-build", 0, True), ("mid-write", 1, True), ("before-rename", 1, True), ("after-rename", 1, False)],
)
def test_a_killed_builder_leaves_nothing_to_take_for_whole(
    tmp_path: Path, point: str, leftovers: int, rebuilt: bool
) -> None:
    """SIGKILL at a named point, in another process; the exit status proves the kill."""
    require_killed(build_until_killed, tmp_path, point)
    cache = Cache(tmp_path, lease_s=NEVER_S)
    assert (tmp_path / "key.lock").exists()  # the kill struck inside
    assert len([*tmp_path.glob("*.tmp")]) == leftovers
    assert (tmp_path / NAME).exists() != rebuilt
    tensors, _ = cache.fetch("key", lambda: entry(2))
    assert torch.equal(tensors["a"], entry(2 if rebuilt else 1)[0]["a"])
    assert torch.equal(load_tensors(tmp_path / NAME)[0]["a"], tensors["a"])
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_leftovers_of_this_entry_are_removed_and_no_others(tmp_path: Path) -> None:
    mine, others = tmp_path / f".{NAME}.ab12.tmp", tmp_path / ".other.safetensors.ab12.tmp"
    for path in (mine, others):
        path.mkdir()
        (path / ".tmpPEVl13").write_bytes(b"half")
    cache = Cache(tmp_path)
    cache.fetch("key", lambda: entry(1))
    assert {path.name for path in tmp_path.iterdir()} == {NAME, others.name}


@pytest.mark.parametrize("before_writing", [True, False])
def test_a_builder_taken_for_dead_still_has_what_it_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, before_writing: bool
) -> None:
    """Stopped while it stored, it wakes up to find its file removed by a builder that is still at work."""

    def remove(*_: object) -> None:
        for path in tmp_path.glob("*.tmp"):
            atomic_files.remove(path)

    def removed(tensors: dict, path: Path, metadata: dict) -> None:
        remove()
        save_file(tensors, path, metadata)

    save_file = checked_files.save_file
    monkeypatch.setattr(checked_files, "save_file", removed) if before_writing else monkeypatch.setattr(
        os, "fsync", remove
    )
    with caplog.at_level(logging.WARNING):
        tensors, _ = Cache(tmp_path).fetch("key", lambda: entry(1))
    assert torch.equal(tensors["a"], entry(1)[0]["a"])
    assert f"{NAME} was not stored" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_whole_entries_need_no_lease(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.fetch("key", lambda: entry(1))
    with Lease(tmp_path / "key.lock"):
        started = time.monotonic()
        assert cache.fetch("key", lambda: pytest.fail("built again"))[0]["a"][0] == 1
    assert time.monotonic() - started < 5


def test_a_cache_is_as_open_as_the_umask_says(tmp_path: Path) -> None:
    root, modes = tmp_path / "cache", []

    def build() -> Entry:
        modes.append(stat.S_IMODE((root / "key.lock").stat().st_mode))
        return entry(1)

    before = os.umask(0o007)
    try:
        Cache(root).fetch("key", build)
        assert os.umask(0o007) == 0o007  # looked at, and left as it was
    finally:
        os.umask(before)
    modes += [stat.S_IMODE(path.stat().st_mode) for path in (root / NAME, root)]
    assert modes == [0o660, 0o660, 0o770]
