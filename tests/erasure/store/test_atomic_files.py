"""Files appear whole or not at all, also when their writer is killed or the disk is full."""

import errno
import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from erasure.store import checked_files
from erasure.store.atomic_files import DiskFullError
from erasure.store.checked_files import load_tensors, read_json, save_tensors, write_json
from tests.processes import require_killed


@pytest.mark.parametrize("function", ["os.fsync", "Path.mkdir"])
def test_a_full_disk_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(f"erasure.store.atomic_files.{function}", full)
    with pytest.raises(DiskFullError, match=r"no space left on disk for .*x\.json: free some"):
        write_json(path, {"a": 2})
    assert read_json(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def write_until_killed(path: Path, point: str) -> None:
    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def half(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
        save_file(tensors, path, metadata)
        os.truncate(path, 1000)
        die()

    if point == "mid-write":
        checked_files.save_file = half
    else:
        Path.replace = die  # pyright: ignore[reportAttributeAccessIssue]
    save_tensors(path, {"a": torch.ones(1000)})


@pytest.mark.parametrize("point", ["mid-write", "before-rename"])
def test_a_killed_writer_leaves_the_old_file(tmp_path: Path, point: str) -> None:
    """SIGKILL at a named point of a rewrite, in another process; the exit status proves the kill."""
    path = tmp_path / "x.safetensors"
    save_tensors(path, {"a": torch.zeros(1000)})
    require_killed(write_until_killed, path, point)
    assert load_tensors(path)[0]["a"].sum() == 0


def test_the_folder_is_flushed_after_the_file_took_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a power cut may undo the rename: what was reported as saved would be the old file."""
    path, flushed = tmp_path / "x.json", []
    real = os.fsync

    def fsync(handle: int) -> None:
        flushed.append((os.fstat(handle).st_ino, path.exists()))
        real(handle)

    monkeypatch.setattr("erasure.store.atomic_files.os.fsync", fsync)
    write_json(path, {"a": 1})
    assert flushed == [(path.stat().st_ino, False), (tmp_path.stat().st_ino, True)]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EINVAL])
@pytest.mark.parametrize("lacking", ["chmod", "fsync", "fsync of folders"])
def test_a_file_system_without_an_operation_keeps_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str, number: int
) -> None:
    """CIFS, FAT and FUSE refuse chmod or fsync, of folders or of all."""
    refuse(monkeypatch, lacking, number)
    write_json(tmp_path / "x.json", {"a": 1})
    save_tensors(tmp_path / "x.safetensors", {"a": torch.ones(3)})
    assert read_json(tmp_path / "x.json") == {"a": 1}
    assert load_tensors(tmp_path / "x.safetensors")[0]["a"].tolist() == [1.0, 1.0, 1.0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.json", "x.safetensors"]


@pytest.mark.parametrize("lacking", ["chmod", "fsync", "fsync of folders"])
def test_a_disk_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    """The negative control: what could not be flushed by a broken disk must not be reported as saved."""
    refuse(monkeypatch, lacking, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        write_json(tmp_path / "x.json", {"a": 1})


def refuse(monkeypatch: pytest.MonkeyPatch, lacking: str, number: int) -> None:
    """Have the system refuse an operation."""

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    def fsync(handle: int) -> None:
        if lacking == "fsync" or stat.S_ISDIR(os.fstat(handle).st_mode):
            refused()

    if lacking == "chmod":
        monkeypatch.setattr(os, "chmod", refused)
    else:
        monkeypatch.setattr(os, "fsync", fsync)
