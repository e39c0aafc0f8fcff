"""Where the files of a report go: below its folder, whatever the runs are called."""

import errno
import re
from pathlib import Path

from erasure.store.storage import fingerprint

_LONGEST = 150  # characters of a file's name


def file_name(text: str) -> str:
    """Return text as a file's name without an ending: its ASCII words, and a digest where any are left out."""
    words = "-".join(re.sub(r"[^A-Za-z0-9_.]", " ", text).split()).lstrip(".")
    whole = 0 < len(words) <= _LONGEST and all(c.isascii() for c in text if c.isalnum())
    return words if whole else f"{words[:_LONGEST]}-{fingerprint(text, 8)}"


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
