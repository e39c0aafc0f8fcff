"""Atomic writing of files: under a temporary name, flushed to disk, then renamed."""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError


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
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.umask(mask := os.umask(0))
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
    """Delete a file, or a folder with all that is in it; one that is gone already is as good."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _sync_directory(directory: Path) -> None:
    """Make a rename durable; not on file systems that cannot fsync a directory."""
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
