"""Atomic writing of files: written under a temporary name, flushed to disk, then renamed."""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

# errors of file systems that lack an operation (CIFS, FAT, FUSE), where nothing more can be done
_LACKING = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class DiskFullError(OSError):
    """No space is left for a file; nothing was overwritten."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path in a folder `.NAME.*.tmp` next to `path`; on success its file is flushed and renamed to `path`.

    A writer that is killed leaves all its files in this folder, even the temporary file that safetensors writes.

    Raises:
        DiskFullError: no space is left; `path` is unchanged.
        FileNotFoundError: the folder was deleted meanwhile; `path` is unchanged.
    """
    folder = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    temporary = folder / path.name
    try:
        folder.mkdir(parents=True)  # with the permissions of the umask, as others may have to delete it
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
    """Delete a file, a link, or a folder and its content, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def _where_supported() -> Iterator[None]:
    """Ignore errors of file systems that lack an operation; raise others, such as EIO and ENOSPC."""
    try:
        yield
    except OSError as error:
        if error.errno not in _LACKING:
            raise


def _sync_directory(directory: Path) -> None:
    """Make a rename durable, unless the folder is not readable or the file system cannot flush directories."""
    with _where_supported():
        try:
            handle = os.open(directory, os.O_RDONLY)
        except PermissionError:
            return
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
