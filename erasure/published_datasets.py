"""Published datasets: download files, verify their checksums, report failures in one line."""

import contextlib
import errno
import hashlib
import socket
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from erasure.source import MissingDataError, RawImages, Source
from erasure.store.atomic_files import DiskFullError
from erasure.store.checked_files import fingerprint

_SILENCE_S = 60.0  # a server that sends nothing for this long is taken to be gone


@dataclass(frozen=True, kw_only=True)
class Published(Source):
    """A dataset in the files that its authors published, laid out below `root` as torchvision does.

    Args:
        root: folder that holds the files, or that they are fetched to.
    """

    root: str = "data"

    locations: ClassVar[tuple[str, ...]] = ("root",)

    @abstractmethod
    def files(self) -> Mapping[str, str]:
        """Path below `root` -> published MD5, of every file that `read` opens."""

    @abstractmethod
    def read(self) -> RawImages:
        """Read the files, all of them verified."""

    @abstractmethod
    def download(self) -> None:
        """Download missing or damaged files."""

    @property
    def folder(self) -> Path:
        return Path(self.root).expanduser()

    def load(self) -> RawImages:
        self.verify()
        return self.read()

    def content(self) -> str:
        """Digest of the published checksums: the same on every machine, with or without the files."""
        return fingerprint(sorted(self.files().values()))

    def verify(self) -> None:
        """Compare every file with its checksum; raises MissingDataError if one is missing, cut short or altered."""
        for name, md5 in self.files().items():
            path = self.folder / name
            if not path.is_file():
                raise MissingDataError(f"dataset {self.name} is not in {self.folder}", self)
            with path.open("rb") as file:
                actual = hashlib.file_digest(file, "md5").hexdigest()
            if actual != md5:
                raise MissingDataError(f"{path} is damaged (its checksum is not the published one)", self)

    def fetch(self) -> None:
        with fetching(f"dataset {self.name}", self.folder):
            self.download()
        self.verify()


class FetchError(OSError):
    """Data that could not be fetched: one line with the reason and the remedy."""


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
