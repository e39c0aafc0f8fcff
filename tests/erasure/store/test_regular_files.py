"""Reading of folders that anybody may have written."""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from erasure.store.checked_files import load_tensors, read_json
from erasure.store.lease_holder import heartbeat
from erasure.store.regular_files import (
    DamagedFileError,
    open_regular,
    read_regular,
    regular,
    require_plain_folder,
)


def bound(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # a socket's path is short
    socket.socket(socket.AF_UNIX).bind(path.name)
    os.chdir(before)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (os.mkfifo, "no regular file, which is not read"),
        (bound, "no regular file, which is not read"),
        (lambda path: path.symlink_to("/dev/zero"), "a link, which is not read"),
        (lambda path: path.symlink_to(path), "a link, which is not read"),
        (lambda path: path.write_bytes(bytes(11)), "too large to be read, 11 bytes: at most 10"),
    ],
)
def test_only_regular_files_are_read(tmp_path: Path, how: Callable[[Path], object], said: str) -> None:
    path = tmp_path / "file"
    how(path)
    with pytest.raises(DamagedFileError, match=f"{path} is {said}"):
        regular(path, 10)


def test_what_is_read_is_the_file_itself(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(10))
    assert regular(tmp_path / "file", 10) == tmp_path / "file"
    with pytest.raises(FileNotFoundError):
        regular(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        regular(tmp_path)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (os.mkfifo, "no regular file"),
        (bound, "no regular file"),
        (lambda path: path.symlink_to(path.with_name("user")), "a link"),
    ],
)
def test_only_regular_files_are_written_to(tmp_path: Path, how: Callable[[Path], object], said: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    require_plain_folder(folder)
    require_plain_folder(tmp_path / "none")
    with open_regular(folder / "log.txt", "a") as file:
        file.write("a\n")
    with open_regular(folder / "log.txt", "a") as file:
        file.write("b\n")
    assert read_regular(folder / "log.txt") == "a\nb\n"
    require_plain_folder(folder)
    how(folder / "other")
    with pytest.raises(DamagedFileError, match=f"other is {said}"):
        open_regular(folder / "other", "a")
    with pytest.raises(DamagedFileError, match=f"other is {said}, and is not written through"):
        require_plain_folder(folder)
    (tmp_path / "again").symlink_to(tmp_path / "user")
    (tmp_path / "user").mkdir()
    with pytest.raises(DamagedFileError, match="again is a link"):
        require_plain_folder(tmp_path / "again")


def test_a_file_that_another_process_deletes_meanwhile_is_none(tmp_path: Path) -> None:
    ended = threading.Event()

    def come_and_go() -> None:
        while not ended.is_set():
            for number in range(20):
                (tmp_path / f"step-{number}.json").touch()
            for path in tmp_path.iterdir():
                path.unlink()

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(2000):
            require_plain_folder(tmp_path)
    finally:
        ended.set()
        other.join()


def test_readers_do_not_wait_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DamagedFileError, match="no regular file"):
        read_json(tmp_path / "pipe")
    with pytest.raises(DamagedFileError, match="no regular file"):
        load_tensors(tmp_path / "pipe")
    beat = heartbeat(tmp_path / "pipe")
    assert beat is not None
    assert beat.process == {}
