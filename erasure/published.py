"""Data that is published: brought here, or why not in one line; nothing is read before its checksum was compared."""

import contextlib
import errno
import hashlib
import shlex
import socket
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import ClassVar

from erasure.source import MissingDataError, RawImages, Source
from erasure.store.storage import DiskFullError, fingerprint

_SILENCE_S = 60.0  # a server that sends nothing for this long is taken to be gone


@dataclass(frozen=True, kw_only=True)
class Published(Source):
    """A dataset in the files that its authors published, laid out below `root` as torchvision does.

    Args:
        root: folder that holds the files, or that they are fetched to.
    """

    root: str = "data"

    locations: ClassVar[tuple[str, ...]] = ("root",)
    choice: ClassVar[str]  # its YAML, for the command that fetches it

    @abstractmethod
    def files(self) -> Mapping[str, str]:
        """Path below `root` -> published MD5, of every file that `read` opens."""

    @abstractmethod
    def read(self) -> RawImages:
        """Read the files, all of them verified."""

    @abstractmethod
    def download(self) -> None:
        """Bring the files; those that are here and whole are kept."""

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
                raise MissingDataError(f"dataset {self.choice} is not in {self.folder}: fetch it with {self._command}")
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "md5").hexdigest()
            if found != md5:
                raise MissingDataError(
                    f"{path} is damaged (its checksum is not the published one): fetch it again with {self._command}"
                )

    def fetch(self) -> None:
        with fetching(f"dataset {self.choice}", self.folder):
            self.download()
        self.verify()

    @property
    def _command(self) -> str:
        return command(self, self.choice)


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
