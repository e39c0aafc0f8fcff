"""Safe reading of untrusted folders: only regular files of limited size are opened, and links are not followed."""

import errno
import math
import os
import stat
from pathlib import Path
from typing import Literal, TextIO

LARGEST_BYTES = 64 * 2**20  # of a file of text
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class DamagedFileError(ValueError):
    """A file that was truncated, overwritten or altered."""


class IrregularFileError(DamagedFileError):
    """A file that is not regular or is too large; `reason` states the problem without the path."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} is {reason}")
        self.reason = reason


def regular(path: Path, most: float = LARGEST_BYTES) -> Path:
    """Return the path of a regular file of at most `most` bytes, for libraries that open files themselves.

    Opening a named pipe never returns, reading /dev/zero never ends, and a link may reveal a file of the reader.

    Raises:
        IrregularFileError: the path is a link or another irregular file, or the file is larger.
        OSError: the file is missing, unreadable, or a folder.
    """
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
        raise IrregularFileError(path, f"{kind}, which is not read: put the file itself there")
    if status.st_size > most:
        raise IrregularFileError(path, f"too large to be read, {status.st_size:,} bytes: at most {most:,}")
    return path


def open_regular(
    path: Path, mode: Literal["r", "a"] = "r", most: float = LARGEST_BYTES, errors: str = "strict"
) -> TextIO:
    """Open a regular text file of at most `most` bytes for reading, or for appending, which creates a missing file.

    Raises:
        IrregularFileError, OSError: as `regular`.
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
        IrregularFileError: a link or another irregular file.
        OSError: the folder cannot be searched.
    """
    try:
        with os.scandir(folder) as entries:
            irregular = [Path(each.path) for each in entries if not _is_plain(each)]
    except FileNotFoundError:
        return
    for path in [*([folder] if folder.is_symlink() else []), *sorted(irregular)]:
        kind = _KINDS.get(stat.S_IFMT(path.lstat().st_mode), "no regular file")
        raise IrregularFileError(path, f"{kind}, and is not written through: delete it, or choose another folder")


def _is_plain(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
