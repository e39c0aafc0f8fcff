"""Any image-classification dataset in the Hugging Face format: on the hub, in a folder, or one parquet file."""

import contextlib
import os
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from erasure.dataset import LabelledImages, MissingDataError, RawImages, Source
from erasure.datasets import hub_download
from erasure.fetch_errors import fetching
from erasure.optional_packages import needs
from erasure.store.checked_files import fingerprint

with needs("hub"):
    from erasure import image_decoding


@dataclass(frozen=True, kw_only=True)
class HuggingFaceTable(Source):
    """Examples and labels from two columns of a table, read without running any code that comes with the data.

    Args:
        path: name on the hub, or a local folder or parquet file.
        config: the dataset's configuration, where it has several.
        revision: commit, branch or tag on the hub; None for the newest when it is fetched.
        train_split: name of the training split.
        test_split: name of the split that is held out; None to hold out `test_fraction` of the training split.
        label_column: name of the column of labels: classes, whole numbers from 0, or words.
        root: folder that datasets from the hub are fetched to.
    """

    path: str
    config: str | None = None
    revision: str | None = None
    train_split: str = "train"
    test_split: str | None = "test"
    label_column: str = "label"
    root: str = "data"

    locations: ClassVar[tuple[str, ...]] = ("path", "revision", "root")

    @classmethod
    def unread_options(cls, options: Mapping[str, Any]) -> Mapping[str, str]:
        return {} if options["test_split"] is None else {"test_fraction": "dataset.test_split=null"}

    def load(self) -> RawImages:
        if (damage := hub_download.damage(self._location())) is not None:
            raise MissingDataError(damage, self)
        inputs, labels, names = self._read(self.train_split)
        names = names or _class_names(labels, f"label_column={self.label_column}")
        train = LabelledImages(inputs, _numbers(labels, names, self._named(self.train_split)))
        if self.test_split is None:
            return RawImages(train, None, names)
        inputs, labels, _ = self._read(self.test_split)
        return RawImages(train, LabelledImages(inputs, _numbers(labels, names, self._named(self.test_split))), names)

    @abstractmethod
    def _read(self, split: str) -> tuple[Tensor, list[Any], tuple[str, ...] | None]:
        """Return inputs [n, C, H, W] and labels of a split, and the names of the classes where the data has them."""

    def content(self) -> str:
        """Return a digest of the names and checksums of all files, independent of their folder."""
        return fingerprint({"files": hub_download.checksums(self._location()), "decoded": image_decoding.VERSION})

    def fetch(self) -> None:
        if self._is_local:
            return
        with fetching(f"{self.path} of the Hugging Face hub", self._fetched.parent):
            hub_download.fetch_repository(self.path, self.revision, self._fetched)

    def _named(self, split: str) -> str:
        return f"split {split} of {self.path}"

    @property
    def _is_local(self) -> bool:
        return Path(self.path).expanduser().exists()

    @property
    def _fetched(self) -> Path:
        """Folder of a dataset from the hub."""
        name = self.path.replace("/", "--") + (f"@{self.revision}" if self.revision else "")
        return Path(self.root).expanduser() / name.replace("/", "--")

    def _location(self) -> Path:
        """Return the folder or file to read."""
        if self._is_local:
            return Path(self.path).expanduser()
        if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", self.path) or self.path.startswith("."):
            raise ValueError(f"path={self.path}: no such folder or parquet file, and no name on the hub")
        if not self._fetched.is_dir():
            raise MissingDataError(f"dataset {self.path} is not in {self._fetched}", self)
        return self._fetched

    def _rows(
        self, split: str, key: str, feature: Any = None, kind: type = object
    ) -> tuple[Iterator[tuple[Any, Any]], tuple[str, ...] | None]:
        """Read inputs of a type, from the column that option `key` names, with labels; and class names, if any."""
        with needs("hub"):
            import datasets  # takes three seconds

        location = self._location()
        datasets.utils.logging.set_verbosity(datasets.logging.CRITICAL)  # errors are reported by us
        where, files = (str(location), None) if location.is_dir() else ("parquet", str(location))
        with self._explained(split):
            builder = datasets.load_dataset_builder(where, self.config, data_files=files)
            listed = {file for part in (builder.config.data_files or {}).values() for file in part}
            _require_below(location, listed)
            known = {*listed, None}
            table: Any = builder.as_streaming_dataset(split=split)
            present = list(table.features or next(iter(table)))
        columns = column, label = getattr(self, key), self.label_column
        for option, name in zip((key, "label_column"), columns, strict=True):
            if name not in present:
                raise ValueError(f"{option}={name}: {self.path} has no such column; choose from {', '.join(present)}")
        table = table.select_columns([*columns])
        names = getattr(dict(table.features or {}).get(label), "names", None)
        table = table if feature is None else table.cast_column(column, feature)

        def rows() -> Iterator[tuple[Any, Any]]:
            with self._explained(split):
                for i, row in enumerate(table):
                    cell = row[column]
                    if not isinstance(cell, kind):
                        raise ValueError(f"row {i} has no {key.removesuffix('_column')}")
                    if isinstance(cell, dict) and cell.get("bytes") is None and cell.get("path") not in known:
                        cell = {"path": _file_below(location, cell["path"], f"row {i}")}
                    yield cell, row[label]

        return rows(), None if names is None else tuple(names)

    @contextlib.contextmanager
    def _explained(self, split: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, TypeError, RuntimeError, StopIteration) as error:
            reason = " ".join(str(error).split())[:200] or "it is empty"
            raise ValueError(
                f"split {split} of path={self.path} cannot be read ({reason}): "
                "check the files, config=NAME, train_split=NAME and test_split=NAME (test_split=None if there is none)"
            ) from error


@dataclass(frozen=True, kw_only=True)
class HuggingFace(HuggingFaceTable):
    """Images and labels.

    Args:
        image_column: name of the column of images.
        size: side in pixels that images are resized to; None where all have one size already.
        channels: 3 for colour, 1 for grayscale; images of the other kind are converted.
    """

    image_column: str = "image"
    size: int | None = None
    channels: Literal[1, 3] = 3

    version = 1

    def _read(self, split: str) -> tuple[Tensor, list[Any], tuple[str, ...] | None]:
        with needs("hub"):
            import datasets

        rows, names = self._rows(split, "image_column", datasets.Image(decode=False))
        labels: list[Any] = []

        def files() -> Iterator[tuple[str, str | bytes]]:
            for i, (cell, label) in enumerate(rows):
                where = f"image {i} of {self._named(split)}"
                candidates = [cell.get("bytes"), cell.get("path")] if isinstance(cell, dict) else []
                file = next((file for file in candidates if file is not None), None)
                if file is None:
                    raise ValueError(f"{where} is empty: drop the row, or choose another column with image_column=NAME")
                labels.append(label)
                yield where, file

        return image_decoding.decode_all(files(), size=self.size, channels=self.channels), labels, names


def _require_below(location: Path, files: set[str]) -> None:
    """Refuse a dataset whose README.md names data elsewhere: in another folder of this machine, or on another machine.

    Links to files are not followed: the hub's cache consists of them.
    """
    folder = location if location.is_dir() else location.parent
    folders = (os.path.abspath(folder), folder.resolve())  # noqa: PTH100
    for file in files:
        if not any(Path(os.path.abspath(file)).is_relative_to(name) for name in folders):  # noqa: PTH100
            raise ValueError(f"it names a file outside its folder: {file}")


def _file_below(location: Path, name: str, where: str) -> Path:
    """Open a file that a cell of a table names, relative to the dataset's folder.

    Raises:
        ValueError: it lies elsewhere, also through a link: it may be any private image of this machine.
    """
    folder = (location if location.is_dir() else location.parent).resolve()
    file = (folder / name).resolve()
    if not file.is_relative_to(folder):
        raise ValueError(f"{where} names a file outside the dataset's folder: {name}")
    return file


def _class_names(labels: list[Any], where: str) -> tuple[str, ...]:
    """Names of classes that the data does not name: its words in order, or 0, 1, ... up to the largest number."""
    if all(isinstance(label, str) for label in labels):
        return tuple(sorted(set(labels)))
    odd = [label for label in labels if not isinstance(label, int) or not 0 <= label < len(labels)]
    if odd:
        raise ValueError(f"{where}: {odd[0]!r} is no class; need whole numbers from 0, words, or named classes")
    return tuple(str(j) for j in range(max(labels) + 1))


def _numbers(labels: list[Any], names: tuple[str, ...], where: str) -> Tensor:
    """Labels [n] as integers in 0..k-1."""
    number: dict[Any, int] = {name: j for j, name in enumerate(names)} | {j: j for j in range(len(names))}
    for i, label in enumerate(labels):
        if number.get(label) is None:
            raise ValueError(
                f"example {i} of {where} has the label {label!r}, which is none of the {len(names)} training classes: "
                "is this split labelled? test_split=None holds out part of the training split instead"
            )
    return torch.tensor([number[label] for label in labels])
