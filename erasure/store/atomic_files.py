"""Atomic writing of files: under a temporary name, flushed to disk, then renamed."""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

# of a file system that lacks an operation (CIFS, FAT, FUSE): what was written is as safe as it gets there
_LACKING = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class DiskFullError(OSError):
    """No space left for a file; nothing was overwritten."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path in a folder `.NAME.*.tmp` next to `path`; on success it is flushed to disk and renamed to `path`.

    The folder contains all files of a killed writer: safetensors also writes a temporary file, under an unrelated name.

    Raises:
        DiskFullError: no space is left; `path` is as it was.
        FileNotFoundError: the folder was deleted meanwhile; `path` is unchanged.
    """
    folder = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    temporary = folder / path.name
    try:
        folder.mkdir(parents=True)  # with the umask's permissions: others may have to delete it
        yield temporary
        with temporary.open("rb+") as file, _where_supported():
            os.fsync(file.fileno())
        os.umask(mask := os.umask(0))
        with _where_supported():
            temporary.chmod(0o666 & ~mask)  # safetensors' 0600 is useless in a shared cache
        temporary.replace(path)
        _sync_directory(path.parent)
    except (OSError, SafetensorError) as error:
        if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error):
            raise DiskFullError(
                errno.ENOSPC, f"no space left on disk for {path}: free some, or move cache_dir and runs_dir"
            ) from error
        if isinstance(error, SafetensorError) and not folder.exists():
            raise FileNotFoundError(errno.ENOENT, "deleted while it was written", str(folder)) from error
        raise
    finally:
        remove(folder)


def remove(path: Path) -> None:
    """Delete a file, a link, or a folder with all that is in it; one that is gone already is as good."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def _where_supported() -> Iterator[None]:
    """Pass over an operation that the file system does not have; other errors, such as EIO and ENOSPC, are raised."""
    try:
        yield
    except OSError as error:
        if error.errno not in _LACKING:
            raise


def _sync_directory(directory: Path) -> None:
    """Make a rename durable; not in a folder that may be written but not read, and where directories have no fsync."""
    with _where_supported():
        try:
            handle = os.open(directory, os.O_RDONLY)
        except PermissionError:
            return
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
