"""Bringing published data here, and saying in one line why that failed."""

import contextlib
import errno
import shlex
import socket
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path

from erasure.source import Source
from erasure.store.storage import DiskFullError

_SILENCE_S = 60.0  # a server that sends nothing for this long is taken to be gone


class FetchError(OSError):
    """Data that could not be brought here: one line with the reason and the remedy."""


@contextlib.contextmanager
def fetching(what: str, folder: Path) -> Iterator[None]:
    """Turn whatever a download library raises while `what` is brought to `folder` into one line.

    Raises:
        DiskFullError: no space is left.
        FetchError: anything else.
    """
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SILENCE_S)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise DiskFullError(
                errno.ENOSPC, f"no space left in {folder} for {what}: free some, or set dataset.root to another disk"
            ) from error
        if isinstance(error, (PermissionError, FileExistsError, NotADirectoryError)):
            raise FetchError(f"{what} cannot be written to {folder}: set dataset.root to a folder of yours") from error
        raise FetchError(
            f"{what} could not be fetched ({reason}): check the network and try again, "
            f"or copy {folder} from a machine that has it"
        ) from error
    finally:
        socket.setdefaulttimeout(before)


def command(source: Source, choice: str) -> str:
    """The command that fetches a dataset, with every option in which it differs from its YAML, `choice`."""
    shared = {f.name for f in fields(Source)}
    words = [f"dataset={choice}"] + ([f"dataset.name={source.name}"] if source.name != choice else [])
    for f in fields(source):
        value = getattr(source, f.name)
        if f.name not in shared and (f.default is MISSING or value != f.default):
            words.append(f"dataset.{f.name}={'null' if value is None else value}")
    return shlex.join(["python", "-m", "scripts.prepare", *words])
