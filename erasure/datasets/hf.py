"""Datasets of images or texts in parquet files, as the Hugging Face hub has them: on the hub, or in a local folder."""

import contextlib
import json
import logging
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
    import pyarrow.parquet as pq
    import yaml

    from erasure import image_decoding

log = logging.getLogger(__name__)

_METADATA_BLOCK = re.compile(r"\s*---[\r\n]+(.*?)[\r\n]+---(?:\r?\n|$)", re.DOTALL)  # at the top of a README.md
_ROWS_AT_ONCE = 256  # kept small, because a row may hold a photograph


@dataclass(frozen=True, kw_only=True)
class HuggingFaceTable(Source):
    """Examples and labels from two columns of parquet files, of which SPLIT-*.parquet belong to a split.

    The hub converts datasets of other formats to parquet files, in `revision="refs/convert/parquet"`.

    Labels are classes whose names the files store, whole numbers from 0, or words. Named classes are matched by name
    if files number them differently. A README.md that names other files, or classes that the files do not name, is
    refused.

    Args:
        path: name on the hub, or a local folder or parquet file.
        config: folder of the parquet files below `path`, if several have such files.
        revision: commit, branch or tag on the hub; None for the newest at the time of the download.
        train_split: name of the training split; "train" for a single file.
        test_split: name of the split that is held out; None to hold out `test_fraction` of the training split.
        label_column: name of the column of labels.
        root: folder to which datasets from the hub are downloaded.
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
        return {} if options["test_split"] is None else {"test_fraction": "test_split=null"}

    def load(self) -> RawImages:
        if (damage := hub_download.damage(self._location())) is not None:
            raise MissingDataError(damage, self)
        if self.train_split == self.test_split:
            raise ValueError(f"test_split={self.test_split}: it is also the training split: choose another, or None")
        if left_out := sorted(self._splits().keys() - {*self._wanted}):
            log.warning("%s: left out: split %s", self.path, ", ".join(left_out))
        self._require_class_names([file for split in self._wanted for file in self._files(split)])
        read = {split: self._read(split) for split in self._wanted}
        names = self._class_names(read[self.train_split][1])
        train, *test = (LabelledImages(x, self._numbers(labels, names, split)) for split, (x, labels) in read.items())
        return RawImages(train, test[0] if test else None, names)

    @abstractmethod
    def _read(self, split: str) -> tuple[Tensor, list[Any]]:
        """Return inputs [n, C, H, W] and labels of a split."""

    def content(self) -> str:
        """Return a digest of the names and checksums of all files, independent of their folder.

        If files have different class names, the names are included, because labels are then matched by name.
        """
        location = self._location()
        for split in self._wanted:
            self._files(split)
        checksums = hub_download.checksums(location)
        described: dict[str, Any] = {"files": checksums, "decoded": image_decoding.VERSION}
        folder = location if location.is_dir() else location.parent
        stored = {_stored_names(folder / name, self.label_column) for name in checksums} - {None}
        if len(stored) > 1:
            described["class_names"] = sorted(map(str, stored))
        return fingerprint(described)

    def fetch(self) -> None:
        if self._is_local:
            return
        with fetching(f"{self.path} of the Hugging Face hub", self._fetched.parent):
            hub_download.fetch_repository(self.path, self.revision, self._fetched)

    @property
    def _wanted(self) -> list[str]:
        return [self.train_split, *([] if self.test_split is None else [self.test_split])]

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

    def _splits(self) -> dict[str, list[Path]]:
        """Return the parquet files of each split, in order."""
        location = self._location()
        if location.suffix == ".parquet" and location.is_file():
            return {"train": [location]}
        files = [location / name for name in hub_download.file_names(location) if name.endswith(".parquet")]
        if not files:
            raise ValueError(
                f"path={self.path}: no .parquet files: for a dataset of the hub set revision=refs/convert/parquet, the "
                "hub's conversion; else write some with Dataset.to_parquet('train.parquet') of the datasets library, "
                "or read folders of images with ImageFolder"
            )
        placed = [_placed(file, location) for file in files]
        folders = {folder.relative_to(location).as_posix() for folder, _ in placed}
        chosen = folders if self.config is None else folders & {self.config}
        if len(chosen) != 1:
            raise ValueError(
                f"config={self.config}: the parquet files of {self.path} are in {', '.join(sorted(folders))}: choose "
                "one of these folders with config=NAME"
            )
        splits: dict[str, list[Path]] = {}
        for file, (folder, split) in zip(files, placed, strict=True):
            if folder == location / min(chosen):
                splits.setdefault(split, []).append(file)
        return splits

    def _files(self, split: str) -> list[Path]:
        splits = self._splits()
        if split not in splits:
            raise ValueError(
                f"split {split} of path={self.path} has no files {split}-*.parquet: choose from {', '.join(splits)} "
                "with train_split=NAME and test_split=NAME (test_split=None if there is none)"
            )
        location, files = self._location(), splits[split]
        configurations = _of_config(_card(location).get("configs"), self.config)
        if configurations and not any(_selects(each, location, split, files) for each in configurations):
            raise ValueError(
                f"split {split} of path={self.path}: README.md names other files under configs than {split}-*.parquet, "
                f"such as {files[0].relative_to(location)}: copy those that it names, as {split}-*.parquet, to a "
                "folder without a README.md"
            )
        return files

    def _require_class_names(self, files: list[Path]) -> None:
        """Refuse class names that are repeated, or that some of the files, or all but a description, lack."""
        where, location = f"label_column={self.label_column}", self._location()
        stored: dict[str, tuple[str, ...] | None] = {}
        for file in files:
            with self._explained(file):
                schema = pq.read_schema(file)
            names = _stored_names(file, self.label_column)
            if self.label_column in schema.names and str(schema.field(self.label_column).type).endswith("string"):
                continue  # words name their classes
            stored[file.relative_to(location).as_posix() if location.is_dir() else file.name] = names
            if names is not None and len({*names}) < len(names):
                repeated = next(name for name in names if names.count(name) > 1)
                raise ValueError(f"{where}: {file.name} of {self.path} calls two classes {repeated}: rename one")
        remedy = "write all files with Dataset.to_parquet of the datasets library, which stores the names"
        if unnamed := [name for name, names in stored.items() if names is None]:
            if named := [name for name in stored if name not in unnamed]:
                raise ValueError(
                    f"{where}: {named[0]} of {self.path} stores the names of its classes, but {unnamed[0]} does not: "
                    f"{remedy}"
                )
            if description := self._naming_description(location):
                raise ValueError(
                    f"{where}: {description} of {self.path} names classes, but {unnamed[0]} does not: {remedy}"
                )

    def _naming_description(self, location: Path) -> str | None:
        """Return the name of the file beside the tables that names the classes; None if there is none."""
        card, infos = _card(location), location / "dataset_infos.json"
        entries = [entry for key in ("dataset_info", "configs") for entry in _of_config(card.get(key), self.config)]
        features = [
            feature
            for entry in entries
            if isinstance(listed := entry.get("features"), list)
            for feature in listed
            if isinstance(feature, dict)
        ]
        if any(f.get("name") == self.label_column and "class_label" in (f.get("dtype") or "") for f in features):
            return "README.md"
        if infos.is_file():
            with self._explained(infos):
                described = json.loads(infos.read_text(encoding="utf-8")).values()
                if any("names" in (info.get("features") or {}).get(self.label_column, {}) for info in described):
                    return infos.name
        return None

    def _rows(self, split: str, key: str) -> Iterator[tuple[Any, Any]]:
        """Yield the cells of the column that option `key` names, with labels; named classes are given as words."""
        columns = {key: getattr(self, key), "label_column": self.label_column}
        for file in self._files(split):
            with self._explained(file):
                table = pq.ParquetFile(file)
                present = table.schema_arrow.names
            for option, name in columns.items():
                if name not in present:
                    raise ValueError(
                        f"{option}={name}: {self.path} has no such column; choose from {', '.join(present)}"
                    )
            names = _stored_names(file, self.label_column)
            number_to_name = None if names is None else dict(enumerate(names))
            with self._explained(file):
                for batch in table.iter_batches(_ROWS_AT_ONCE, columns=[*columns.values()]):
                    cells, labels = (batch.column(name).to_pylist() for name in columns.values())
                    if number_to_name is not None:  # unlabelled rows have the number -1
                        labels = [number_to_name.get(label) for label in labels]
                    yield from zip(cells, labels, strict=True)

    @contextlib.contextmanager
    def _explained(self, file: Path) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # damaged bytes raise errors of any type
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"path={self.path}: {file.name} cannot be read ({reason}): write it again") from error

    def _class_names(self, labels: list[Any]) -> tuple[str, ...]:
        """Return the class names that the files store, or else all words in order, or 0, 1, ... to the largest."""
        if stored := _stored_names(self._files(self.train_split)[0], self.label_column):
            return stored
        where = f"label_column={self.label_column}"
        if missing := sum(label is None or label != label for label in labels):
            raise ValueError(f"{where}: {missing} of {len(labels)} labels are missing: drop these rows")
        if all(isinstance(label, str) for label in labels):
            return tuple(sorted(set(labels)))
        for label in labels:
            if type(label) is not int or not 0 <= label < len(labels):
                raise ValueError(f"{where}: {label!r} is no class; need whole numbers from 0, words, or named classes")
        return tuple(map(str, range(max(labels) + 1)))

    def _numbers(self, labels: list[Any], names: tuple[str, ...], split: str) -> Tensor:
        """Convert labels [n] to integers in 0..k-1."""
        number = {name: j for j, name in enumerate(names)}
        keys = [str(label) if isinstance(label, (str, int)) else None for label in labels]
        for i, key in enumerate(keys):
            if key not in number:
                raise ValueError(
                    f"example {i} of split {split} of {self.path} has the label {key}, which is none of the "
                    f"{len(names)} training classes: is this split labelled? test_split=None holds out part of the "
                    "training split instead"
                )
        return torch.tensor([number[key] for key in keys if key is not None])


@dataclass(frozen=True, kw_only=True)
class HuggingFace(HuggingFaceTable):
    """Images and labels.

    Args:
        image_column: name of the column of images, as bytes or as the `datasets` library stores them.
        size: side in pixels to which images are resized; None if all have the same size.
        channels: 3 for colour, 1 for grayscale; images of the other kind are converted.
    """

    image_column: str = "image"
    size: int | None = None
    channels: Literal[1, 3] = 3

    version = 1

    def _read(self, split: str) -> tuple[Tensor, list[Any]]:
        labels: list[Any] = []

        def files() -> Iterator[tuple[str, bytes]]:
            for i, (cell, label) in enumerate(self._rows(split, "image_column")):
                where = f"image {i} of split {split} of {self.path}"
                content = cell.get("bytes") if isinstance(cell, dict) else cell
                if not isinstance(content, bytes):
                    raise ValueError(
                        f"{where} is not in the file: drop the row, choose another column with image_column=NAME, or "
                        "read files of images with ImageFolder"
                    )
                labels.append(label)
                yield where, content

        return image_decoding.decode_all(files(), size=self.size, channels=self.channels), labels


def _placed(file: Path, location: Path) -> tuple[Path, str]:
    """Return the folder of a parquet file's configuration, and its split.

    Files are FOLDER/SPLIT-*.parquet or, as the hub converts datasets to, FOLDER/SPLIT/0000.parquet.
    """
    if file.stem.isdigit() and file.parent != location:
        return file.parent.parent, file.parent.name
    return file.parent, file.stem.partition("-")[0]


def _stored_names(file: Path, label: str) -> tuple[str, ...] | None:
    """Return the class names of a column in a .parquet file; None if it has none."""
    if file.suffix != ".parquet":
        return None
    try:
        features = json.loads((pq.read_schema(file).metadata or {})[b"huggingface"])["info"]["features"]
        return tuple(map(str, features[label]["names"]))
    except (OSError, ValueError, KeyError, TypeError):  # a damaged file is reported when its rows are read
        return None


def _card(location: Path) -> dict[str, Any]:
    """Return the metadata at the top of the README.md of a folder.

    Raises:
        ValueError: broken metadata.
    """
    readme = location / "README.md"
    text = readme.read_text(encoding="utf-8", errors="replace") if readme.is_file() else ""
    try:
        card = yaml.safe_load(block[1]) if (block := _METADATA_BLOCK.match(text)) else {}
    except (yaml.YAMLError, ValueError) as error:  # such as a day that does not exist
        reason = " ".join(str(error).split())[:160]
        raise ValueError(f"{readme} begins with broken metadata ({reason}): fix it, or delete the lines") from error
    return card if isinstance(card, dict) else {}


def _of_config(entries: Any, config: str | None) -> list[dict[str, Any]]:
    """Return the entries of a README.md that describe a configuration, or the default; all if none is called so."""
    listed = [entry for entry in (entries if isinstance(entries, list) else [entries]) if isinstance(entry, dict)]
    if config is None:
        chosen = [entry for entry in listed if entry.get("default") or entry.get("config_name") == "default"]
    else:
        chosen = [entry for entry in listed if str(entry.get("config_name")) == config]
    return chosen or listed


def _selects(configuration: dict[str, Any], location: Path, split: str, files: list[Path]) -> bool:
    """Return whether a configuration in a README.md has exactly these files in a split."""
    base = location / str(configuration.get("data_dir") or "")
    listed = configuration.get("data_files")
    if listed is None:
        return all(file.is_relative_to(base) for file in files)
    selected: set[Path] = set()
    try:
        for item in [listed] if isinstance(listed, str) else listed:
            of_split, paths = (item["split"], item["path"]) if isinstance(item, dict) else ("train", item)
            for pattern in [paths] if isinstance(paths, str) else paths:
                if str(of_split) == split:
                    selected |= {path for path in base.glob(pattern) if path.is_file()}
    except (KeyError, TypeError, ValueError, NotImplementedError):  # no such list, or a pattern of another kind
        return False
    return selected == {*files}
