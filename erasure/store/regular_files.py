"""Safe reading of untrusted files: only regular ones, and only up to a size."""

import errno
import os
import stat
from pathlib import Path

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
    """No regular file, or one that is too large; `reason` says which, without the path."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} is {reason}")
        self.reason = reason


def regular(path: Path, most: int = LARGEST_BYTES) -> Path:
    """Return the path of a regular file of at most `most` bytes.

    Opening a named pipe never returns, reading /dev/zero never ends, and a link gives away a file of its reader's.

    Raises:
        IrregularFileError: it is something else, a link included, or larger.
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
