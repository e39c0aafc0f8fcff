"""Safe reading of untrusted folders: only regular files of limited size are opened, and links are not followed."""

import contextlib
import errno
import math
import os
import stat
from pathlib import Path
from typing import Literal, TextIO

LARGEST_BYTES = 64 * 2**20  # of a file of text


class DamagedFileError(ValueError):
    """A file that was truncated, overwritten or altered."""


def regular(path: Path, most: float = LARGEST_BYTES) -> Path:
    """Return the path of a regular file of at most `most` bytes, for libraries that open files themselves.

    Opening a named pipe never returns, reading /dev/zero never ends, and a link may reveal a file of the reader.

    Raises:
        DamagedFileError: the path is a link or another irregular file, or the file is larger.
        OSError: the file is missing, unreadable, or a folder.
    """
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise DamagedFileError(f"{path} is {_kind(status)}, which is not read: put the file itself there")
    if status.st_size > most:
        raise DamagedFileError(f"{path} is too large to be read, {status.st_size:,} bytes: at most {most:,}")
    return path


def open_regular(
    path: Path, mode: Literal["r", "a"] = "r", most: float = LARGEST_BYTES, errors: str = "strict"
) -> TextIO:
    """Open a regular text file of at most `most` bytes for reading, or for appending, which creates a missing file.

    Raises:
        DamagedFileError, OSError: as `regular`.
    """
    if mode == "r" or os.path.lexists(path):
        regular(path, most if mode == "r" else math.inf)
    return open(path, mode, encoding="utf-8", errors=errors, opener=_open_unfollowed)


def _open_unfollowed(path: str, flags: int) -> int:
    """Open a file that was regular when checked: a link put there since is an error, and a pipe does not block."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)


def read_regular(path: Path, most: float = LARGEST_BYTES, errors: str = "strict") -> str:
    """Return the text of a regular file of at most `most` bytes; raises as `regular`."""
    with open_regular(path, "r", most, errors) as file:
        return file.read()


def require_plain_folder(folder: Path) -> None:
    """Refuse a folder for writing that is a link, or that contains anything but files and folders.

    Writing could otherwise go elsewhere, or wait forever for a reader. A missing folder is accepted.

    Raises:
        DamagedFileError: a link or another irregular file.
        OSError: the folder cannot be searched.
    """
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 (pathlib opens it later)
    except FileNotFoundError:
        return
    for path in (folder, *(folder / name for name in names)):
        with contextlib.suppress(FileNotFoundError):  # another process has just deleted its file
            status = path.lstat()
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                kind = _kind(status)
                raise DamagedFileError(
                    f"{path} is {kind}, and is not written through: delete it, or choose another folder"
                )


def _kind(status: os.stat_result) -> str:
    return "a link" if stat.S_ISLNK(status.st_mode) else "no regular file"
