"""Datasets published as files of known checksum: nothing is read, let alone unpickled, before it was compared."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torchvision.datasets.utils import check_integrity

from erasure.fetch import command, fetching
from erasure.source import MissingDataError, RawImages, Source
from erasure.store.storage import fingerprint


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
        """Compare every file with its checksum.

        Raises:
            MissingDataError: one is missing, cut short or altered.
        """
        for name, md5 in self.files().items():
            path = self.folder / name
            if not path.is_file():
                raise MissingDataError(f"dataset {self.choice} is not in {self.folder}: fetch it with {self._command}")
            if not check_integrity(path, md5):
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
