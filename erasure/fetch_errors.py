"""Failures to fetch data, each in one line with a remedy."""

import contextlib
import errno
import socket
from collections.abc import Iterator
from pathlib import Path

from erasure.store.atomic_files import DiskFullError

_SILENCE_S = 60.0  # seconds without data from the server after which a download fails


class FetchError(OSError):
    """A failed download, with the reason and the remedy in one line."""


@contextlib.contextmanager
def fetching(what: str, folder: Path) -> Iterator[None]:
    """Turn errors of a library that downloads `what` to `folder` into errors of one line.

    Raises:
        DiskFullError: no space is left.
        FetchError: anything else.
    """
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SILENCE_S)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except ImportError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise DiskFullError(
                errno.ENOSPC,
                f"no space left in {folder} for {what}: free some, or choose another disk with root=FOLDER",
            ) from error
        if isinstance(error, (PermissionError, FileExistsError, NotADirectoryError)):
            raise FetchError(f"{what} cannot be written to {folder}: choose your own with root=FOLDER") from error
        raise FetchError(
            f"{what} could not be fetched ({reason}): check the network and try again, "
            f"or copy {folder} from a machine that has it"
        ) from error
    finally:
        socket.setdefaulttimeout(before)
