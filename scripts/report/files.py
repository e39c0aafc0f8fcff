"""Paths of a report's files: below its folder, whatever the runs are called."""

import errno
from pathlib import Path


def file_in(out: Path, folder: str, name: str) -> Path:
    """Return `out/folder/name`, whose folder is there then.

    Raises:
        OSError: the folder cannot be made, or is a link that leads out of `out`.
    """
    place = out / folder
    place.mkdir(parents=True, exist_ok=True)
    if place.resolve() != out.resolve() / folder:
        raise OSError(errno.EPERM, "a link that leads elsewhere, which is not written through", str(place))
    return place / name
