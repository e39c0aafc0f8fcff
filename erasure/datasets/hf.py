"""Image-classification datasets in the Hugging Face format: on the hub, in a folder, or in one parquet file."""

import contextlib
import itertools
import json
import logging
import os
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from erasure.dataset import MISSING_WORDS, LabelledImages, MissingDataError, RawImages, Source
from erasure.datasets import hub_download
from erasure.fetch_errors import fetching
from erasure.optional_packages import needs
from erasure.store.checked_files import fingerprint

with needs("hub"):
    import pyarrow as pa
    import pyarrow.parquet as pq
    import yaml

    from erasure import image_decoding

log = logging.getLogger(__name__)

_METADATA = {"README.md", "dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json"}
_TABLES = {".arrow", ".csv", ".json", ".jsonl", ".parquet", ".tsv"}
_METADATA_BLOCK = re.compile(r"\s*---[\r\n]+(.*?)[\r\n]+---(?:\r?\n|$)", re.DOTALL)  # at the top of a README.md
_MARK = "text:"  # prefix that keeps .csv texts and labels such as 007 and NA from being read as numbers or missing
_SPLIT_WORDS = ["train", "training", "validation", "valid", "dev", "val", "test", "testing", "eval", "evaluation"]
_SPLIT_WORD = re.compile(  # in the name of a folder or file, from which `datasets` guesses splits
    rf"(?:^|[-._ 0-9])(?:{'|'.join(_SPLIT_WORDS)})(?:[-._ 0-9]|$)"
)


@dataclass(frozen=True, kw_only=True)
class HuggingFaceTable(Source):
    """Examples and labels from two columns of a table, read without running code from the dataset.

    Args:
        path: name on the hub, or a local folder or parquet file.
        config: configuration of the dataset, if it has several.
        revision: commit, branch or tag on the hub; None for the newest at the time of the download.
        train_split: name of the training split.
        test_split: name of the split that is held out; None to hold out `test_fraction` of the training split.
        label_column: name of the column of labels: classes, whole numbers from 0, or words.
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
        self._require_images_in_splits(hub_download.file_names(self._location()))
        builder = self._builder()
        data_files = {str(split): set(files) for split, files in (builder.config.data_files or {}).items()}
        if both := sorted(data_files.get(self.train_split, set()) & data_files.get(str(self.test_split), set())):
            raise ValueError(f"path={self.path}: {len(both)} files are in both splits: {both[0]} is one")
        inputs, labels, stored = self._read(builder, self.train_split)
        labels = _typed(labels)
        names = stored or _class_names(labels, f"label_column={self.label_column}")
        train = LabelledImages(inputs, _numbers(labels, names, self._named(self.train_split)))
        named = stored is not None or isinstance(labels[0], str)
        only_words = named and stored is None
        test = None
        if self.test_split is not None:
            inputs, labels, stored = self._read(builder, self.test_split)
            labels = _typed(labels, only_words=only_words)
            if named and stored is not None and stored != names:
                labels = [stored[j] if isinstance(j, int) and 0 <= j < len(stored) else j for j in labels]
            if only_words and stored is None:
                labels = [str(j) if isinstance(j, int) else j for j in labels]
            test = LabelledImages(inputs, _numbers(labels, names, self._named(self.test_split)))
        read = {self.train_split: len(train)} | ({} if test is None else {str(self.test_split): len(test)})
        self._warn_of_what_is_left_out(data_files, read)
        return RawImages(train, test, names)

    @abstractmethod
    def _read(self, builder: Any, split: str) -> tuple[Tensor, list[Any], tuple[str, ...] | None]:
        """Return inputs [n, C, H, W] and labels of a split, and the names of its classes if the data has them."""

    def content(self) -> str:
        """Return a digest of the names and checksums of all files, independent of their folder.

        If files have different class names, the names are included, because labels are then matched by name.
        """
        location = self._location()
        checksums = hub_download.checksums(location)
        self._require_images_in_splits(checksums)
        folder = _folder(location)
        if (saved := _saved_files(location)) is not None:
            listed = {file for files in saved.values() for file in files}
            left_by_map = {n for n in checksums if n.endswith(".arrow") and folder / n not in listed}
            checksums = {n: digest for n, digest in checksums.items() if n not in left_by_map}
        described: dict[str, Any] = {"files": checksums, "decoded": image_decoding.VERSION}
        if any(name.endswith((".csv", ".tsv")) for name in checksums):
            described["labels"] = "words unless all are numbers"  # a part of them was once read as numbers
        stored = {_stored_names(folder / name, self.label_column) for name in checksums} - {None}
        if len(stored) > 1:
            described["class_names"] = sorted(map(str, stored))
        return fingerprint(described)

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

    def _builder(self) -> Any:
        """Return the `datasets` library's description of all splits, whose files lie in the dataset's folder."""
        with needs("hub"):
            import datasets  # takes three seconds

        location = self._location()
        if "[" in str(location.resolve()):
            raise ValueError(f"path={self.path}: a folder's name has a bracket, which begins a pattern: rename it")
        datasets.utils.logging.set_verbosity(datasets.logging.CRITICAL)  # errors are reported by us
        with self._explained(self.train_split):
            _ = _configurations(location)  # refuses addresses, which the library would open
            # a relative path could be the name of one of the library's readers, such as "csv"
            where, files = (str(location.absolute()), None) if location.is_dir() else ("parquet", str(location))
            if (saved := _saved_files(location)) is not None:
                where, files = "arrow", {split: [str(file) for file in listed] for split, listed in saved.items()}
            builder = datasets.load_dataset_builder(where, self.config, data_files=files)
            _require_below(location, {file for part in (builder.config.data_files or {}).values() for file in part})
        return builder

    def _rows(
        self, builder: Any, split: str, key: str, feature: Any = None, kind: type = object
    ) -> tuple[Iterator[tuple[Any, Any]], tuple[str, ...] | None]:
        """Read inputs from the column that option `key` names, with labels; also return class names, if any."""
        with needs("hub"):
            import datasets

        location = self._location()
        data_files = builder.config.data_files or {}
        known = {file for part in data_files.values() for file in part}
        columns = column, label = getattr(self, key), self.label_column
        with self._explained(split):
            files = list(data_files.get(split, []))
            stored = {_stored_names(Path(file), label) for file in files} - {None}
            if len(stored) > 1:
                one, other = sorted(map(str, stored))[:2]
                raise ValueError(f"its files number the classes differently, {one} and {other}: write it again")
            is_csv = hasattr(builder.config, "converters")
            marked = is_csv and kind is str
            if is_csv:
                marks = [column] * marked + [label] * (builder.info.features is None)
                builder.config.converters = dict.fromkeys(marks, _MARK.__add__)
                builder.config.keep_default_na, builder.config.na_values = False, [""]  # a class may be called NA
            table: Any = builder.as_streaming_dataset(split=split)
            names = stored.pop() if stored else _names(table.features, label)
            if names is not None and names != _names(
                table.features, label
            ):  # names from another split, or from README.md
                alone = datasets.load_dataset_builder(Path(files[0]).suffix[1:], data_files={split: files})
                table = alone.as_streaming_dataset(split=split)
            present = list(table.features or next(iter(table)))
        for option, name in zip((key, "label_column"), columns, strict=True):
            if name not in present:
                raise ValueError(f"{option}={name}: {self.path} has no such column; choose from {', '.join(present)}")
        table = table.select_columns([*columns])
        if feature is not None and table.features is not None:  # None for .csv files
            table = table.cast_column(column, feature)

        def rows() -> Iterator[tuple[Any, Any]]:
            with self._explained(split):
                for i, row in enumerate(table):
                    cell = row[column]
                    if feature is not None and isinstance(cell, str):
                        cell = {"path": cell}
                    if marked and isinstance(cell, str):
                        cell = cell.removeprefix(_MARK) or None
                    if not isinstance(cell, kind):
                        raise ValueError(f"row {i} has no {key.removesuffix('_column')}")
                    if isinstance(cell, dict) and cell.get("bytes") is None and cell.get("path") not in {*known, None}:
                        cell = {"path": _file_below(location, cell["path"], f"row {i}")}
                    yield cell, row[label]

        return rows(), names

    def _require_images_in_splits(self, names: Iterable[str]) -> None:
        """Refuse images if the library would read only some, because it guesses splits from names of files."""
        location = self._location()
        if not location.is_dir() or _saved_files(location) is not None or _configurations(location):
            return
        files = [PurePosixPath(name) for name in names]
        images = [file for file in files if file.suffix.lower() in image_decoding.SUFFIXES]
        if any(
            file.suffix.lower() in _TABLES and file.stem != "metadata" for file in files if file.name not in _METADATA
        ):
            return  # cells of tables may name images
        by_folder = [image for image in images if any(map(_SPLIT_WORD.search, image.parent.parts))]
        in_splits = by_folder or [image for image in images if _SPLIT_WORD.search(image.name)]
        if in_splits and len(in_splits) < len(images):
            raise ValueError(
                f"path={self.path}: {len(images) - len(in_splits)} of {len(images)} images belong to no split, as the "
                f"paths of others name one ({in_splits[0]}): put all below train/CLASS/ and test/CLASS/, which "
                "image_folder reads"
            )

    def _warn_of_what_is_left_out(self, data_files: Mapping[str, set[str]], read: Mapping[str, int]) -> None:
        """Warn of files that belong to no split, and of images that are not read.

        Args:
            data_files: paths of the files of every split.
            read: number of examples of each split that was read.
        """
        left_out = {f"files of split {split}": len(data_files[split]) for split in data_files.keys() - read.keys()}
        for split, files in data_files.items():  # a metadata file need not name all images
            images = sum(Path(file).suffix.lower() in image_decoding.SUFFIXES for file in files)
            if split in read and images > read[split]:
                left_out[f"images of split {split}"] = images - read[split]
        listed = {Path(file) for files in data_files.values() for file in files}
        location, suffixes = self._location(), {file.suffix.lower() for file in listed} | _TABLES
        for name in hub_download.file_names(location) if location.is_dir() else ():
            file = location.resolve() / name
            if file not in listed and file.name not in _METADATA and file.suffix.lower() in suffixes:
                kind = f"{file.suffix} files in no split"
                left_out[kind] = left_out.get(kind, 0) + 1
        train = (Path(file).with_suffix("").parts for file in data_files.get(self.train_split, ()))
        for name in sorted(set(itertools.chain.from_iterable(train)) - {*location.resolve().parts, *_SPLIT_WORDS}):
            if name.lower() in _SPLIT_WORDS[2:]:
                log.warning("%s: %s is read as training data: splits are written in lower case", self.path, name)
        if left_out:
            log.warning("%s: left out: %s", self.path, ", ".join(f"{n} {kind}" for kind, n in sorted(left_out.items())))

    @contextlib.contextmanager
    def _explained(self, split: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # readers of damaged files raise errors of any type
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
        size: side in pixels to which images are resized; None if all have the same size.
        channels: 3 for colour, 1 for grayscale; images of the other kind are converted.
    """

    image_column: str = "image"
    size: int | None = None
    channels: Literal[1, 3] = 3

    version = 1

    def example_names(self, index: Tensor) -> list[str]:
        """Return the image files of the training examples at these positions [n], or "row 7" for rows without a file.

        Files in the folder of the dataset are named relative to it.
        """
        rows, _ = self._images(self._builder(), self.train_split)
        folder, wanted = _folder(self._location()).resolve(), set(index.tolist())
        files = {i: cell.get("path") for i, (cell, _) in enumerate(rows) if i in wanted}
        return [
            f"row {i}" if (file := files[i]) is None else str(file).removeprefix(f"{folder}{os.sep}")
            for i in index.tolist()
        ]

    def _images(self, builder: Any, split: str) -> tuple[Iterator[tuple[Any, Any]], tuple[str, ...] | None]:
        """Read image files, without decoding them, with labels; also return class names, if any."""
        with needs("hub"):
            import datasets

        return self._rows(builder, split, "image_column", datasets.Image(decode=False))

    def _read(self, builder: Any, split: str) -> tuple[Tensor, list[Any], tuple[str, ...] | None]:
        rows, names = self._images(builder, split)
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


def _folder(location: Path) -> Path:
    return location if location.is_dir() else location.parent


def _saved_files(location: Path) -> dict[str, list[Path]] | None:
    """Return the files of each split of a folder that `save_to_disk` wrote; None for other folders.

    Other .arrow files in it are left by `map` and belong to no dataset.

    Raises:
        ValueError: its lists of files cannot be read.
    """
    try:
        if (location / "dataset_dict.json").is_file():
            described = json.loads((location / "dataset_dict.json").read_text(encoding="utf-8"))
            folders = {str(split): location / split for split in described["splits"]}
        elif (location / "state.json").is_file():
            folders = {"train": location}
        else:
            return None
        lists = {
            split: json.loads((folder / "state.json").read_text(encoding="utf-8"))["_data_files"]
            for split, folder in folders.items()
        }
        return {split: [folders[split] / file["filename"] for file in files] for split, files in lists.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{location}: its state.json cannot be read ({error!r}): save the dataset again") from error


def _configurations(location: Path) -> list[Any]:
    """Return the configurations that the README.md of a dataset declares.

    Raises:
        ValueError: the metadata is invalid, names addresses on other machines, or is in a file without a checksum.
    """
    if (location / ".huggingface.yaml").exists():
        raise ValueError(f"{location}/.huggingface.yaml is not read: move its lines into README.md, and delete it")
    readme = location / "README.md"
    if not readme.is_file() or not (
        block := _METADATA_BLOCK.match(readme.read_text(encoding="utf-8", errors="replace"))
    ):
        return []
    try:
        card = yaml.safe_load(block[1])
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())[:160]
        raise ValueError(f"{readme} begins with broken metadata ({reason}): fix it, or delete the lines") from error
    configurations = card.get("configs") if isinstance(card, dict) else None
    if address := next((text for text in _texts(configurations) if "://" in text), None):
        raise ValueError(f"{readme} names a file outside its folder: {address}: download it, and name the file")
    return configurations if isinstance(configurations, list) else []


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in nested lists and mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _names(features: Any, label: str) -> tuple[str, ...] | None:
    names = getattr(dict(features or {}).get(label), "names", None)
    return None if names is None else tuple(names)


def _stored_names(file: Path, label: str) -> tuple[str, ...] | None:
    """Return the class names of a column in a .parquet or .arrow file; None if it has none."""
    try:
        if file.suffix == ".parquet":
            schema = pq.read_schema(file)
        elif file.suffix == ".arrow":
            with pa.OSFile(str(file)) as source:
                schema = pa.ipc.open_stream(source).schema
        else:
            return None
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return tuple(map(str, features[label]["names"]))
    except (OSError, ValueError, KeyError, TypeError):  # a damaged file is reported when its rows are read
        return None


def _require_below(location: Path, files: set[str]) -> None:
    """Refuse a dataset whose README.md names data in another folder or on another machine.

    Links to files are not resolved, because the cache of the hub consists of links.
    """
    folder = _folder(location)
    folders = (os.path.abspath(folder), folder.resolve())  # noqa: PTH100
    for file in files:
        if not any(Path(os.path.abspath(file)).is_relative_to(name) for name in folders):  # noqa: PTH100
            raise ValueError(f"it names a file outside its folder: {file}")


def _file_below(location: Path, name: str, where: str) -> Path:
    """Return the path of a file that a cell of a table names, relative to the dataset's folder.

    Raises:
        ValueError: the file, or the target of a link, lies outside the folder and could be a private image.
    """
    folder = _folder(location).resolve()
    file = (folder / name).resolve()
    if not file.is_relative_to(folder):
        raise ValueError(f"{where} names a file outside the dataset's folder: {name}")
    return file


def _class_names(labels: list[Any], where: str) -> tuple[str, ...]:
    """Return class names for data without any: its words in order, or 0, 1, ... up to the largest number."""
    if missing := sum(label is None or label != label for label in labels):
        raise ValueError(f"{where}: {missing} of {len(labels)} labels are missing: drop these rows, or fill them in")
    if all(isinstance(label, str) for label in labels):
        return tuple(sorted(set(labels)))
    whole = (int, float)  # a column of whole numbers that once had missing values is floating
    invalid = [j for j in labels if not isinstance(j, whole) or not 0 <= j < len(labels) or j != int(j)]
    if invalid:
        raise ValueError(f"{where}: {invalid[0]!r} is no class; need whole numbers from 0, words, or named classes")
    return tuple(str(j) for j in range(int(max(labels)) + 1))


def _typed(labels: list[Any], *, only_words: bool = False) -> list[Any]:
    """Return marked labels of .csv files as numbers if all are numbers or missing, and as words otherwise."""
    if not all(isinstance(label, str) and label.startswith(_MARK) for label in labels):
        return labels
    words = [label.removeprefix(_MARK) or None for label in labels]
    if only_words:
        return words
    try:
        return [None if word is None or word in MISSING_WORDS else _number(word) for word in words]
    except ValueError:
        return words


def _number(word: str) -> int | float:
    if "_" in word:  # which Python allows in numbers
        raise ValueError(word)
    number = float(word)
    return int(number) if number.is_integer() else number


def _numbers(labels: list[Any], names: tuple[str, ...], where: str) -> Tensor:
    """Convert labels [n] to integers in 0..k-1."""
    number: dict[Any, int] = {name: j for j, name in enumerate(names)} | {j: j for j in range(len(names))}
    for i, label in enumerate(labels):
        if number.get(label) is None:
            raise ValueError(
                f"example {i} of {where} has the label {label!r}, which is none of the {len(names)} training classes: "
                "is this split labelled? test_split=None holds out part of the training split instead"
            )
    return torch.tensor([number[label] for label in labels])
