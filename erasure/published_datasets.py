"""Published datasets: download their files and verify them by their checksums."""

import hashlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from erasure.fetching import fetching
from erasure.source import MissingDataError, RawImages, Source
from erasure.store.checked_files import fingerprint


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
