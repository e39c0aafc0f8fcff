"""Labelled arrays: images, or vectors such as averages of word vectors, hidden states or tables of measurements."""

import contextlib
import logging
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from erasure.dataset import LabelledImages, RawImages, Source
from erasure.device_memory import free_bytes
from erasure.store.checked_files import file_checksum, fingerprint

log = logging.getLogger(__name__)

_SUFFIXES = (".npz", ".safetensors")
_CHANNELS = (1, 3)
_EXACT = 2**53  # float64 represents all whole numbers up to this one
_LEAST = 1e-75  # least size of values, because commands compute their fourth powers


@dataclass(frozen=True, kw_only=True)
class Arrays(Source):
    """Vectors [n, d] or images, and labels [n], from one .npz file (opened without pickle) or .safetensors file.

    A vector is stored as d channels of one point, [n, d, 1, 1], so that code for images applies to it. Coordinates are
    standardised one by one for training, as channels are, and there is nothing to crop or flip. Values of vectors may
    be any numbers. Images are uint8, as in MedMNIST.

    Args:
        path: the file.
        x_key: name of the array of training examples: vectors [n, d] of any numbers, or images, uint8 [n, H, W],
            [n, H, W, C] or [n, C, H, W] with C = 1 or 3 channels.
        y_key: name of the array of their labels: whole numbers or words [n] or [n, 1], or one-hot rows [n, k]. The
            classes are the distinct labels, in order.
        test_x_key: name of the array of examples held out for testing; None to hold out `test_fraction` of the others.
        test_y_key: name of the array of their labels.
        names: text file with the names of the training examples for tables and figures, one per line, in order and
            without a header; None to number the examples.
    """

    path: str
    x_key: str = "x"
    y_key: str = "y"
    test_x_key: str | None = None
    test_y_key: str | None = None
    names: str | None = None

    version = 1
    slow_to_load: ClassVar[bool] = False
    locations: ClassVar[tuple[str, ...]] = ("path", "names")

    @classmethod
    def unread_options(cls, options: Mapping[str, Any]) -> Mapping[str, str]:
        held_out = {} if options["test_x_key"] is None else {"test_fraction": "test_x_key=null"}
        return {"flip": "a dataset of images", **held_out}

    def load(self) -> RawImages:
        if (self.test_x_key is None) != (self.test_y_key is None):
            raise ValueError(
                f"test_x_key={self.test_x_key}, test_y_key={self.test_y_key}: set both, or neither to hold out a part "
                "of the other vectors"
            )
        pairs = [(self.x_key, self.y_key)]
        if self.test_x_key is not None and self.test_y_key is not None:
            pairs.append((self.test_x_key, self.test_y_key))
        keys = [key for pair in pairs for key in pair]
        arrays = self._read(keys)
        examples = [self._examples(arrays[x_key], x_key) for x_key, _ in pairs]
        if len({part.shape[1:] for part in examples}) > 1:
            one, other = (_described(part) for part in examples)
            raise ValueError(f"{self.path}: '{self.test_x_key}' has {other}, but '{self.x_key}' has {one}")
        labels = [self._labels(arrays[y_key], y_key, len(x)) for (_, y_key), x in zip(pairs, examples, strict=True)]
        self.example_names(torch.arange(len(examples[0])))  # a wrong file is refused before anything is computed
        classes = np.unique(labels[0])
        train, *test = (LabelledImages(x, self._positions(y, classes)) for x, y in zip(examples, labels, strict=True))
        bounded = arrays[self.x_key].ndim > 2
        return RawImages(train, test[0] if test else None, tuple(map(str, classes)), bounded=bounded)

    def example_names(self, index: Tensor) -> list[str]:
        """Return the names of the training examples at these positions [n]: the lines of `names`, or "row 7".

        Raises:
            ValueError: `names` is no text file, or does not have as many lines as there are examples.
        """
        if self.names is None:
            return super().example_names(index)
        lines, (shape, _) = self._lines(self.names), self._arrays([self.x_key])[1][self.x_key]
        if len(lines) != shape[0]:
            raise ValueError(
                f"names={self.names} has {len(lines)} lines, and '{self.x_key}' of {self.path} has {shape[0]} rows: "
                "give one line for each row, and no header"
            )
        return [lines[i] for i in index.tolist()]

    def names_content(self) -> str | None:
        """Return a digest of the lines of `names`."""
        return None if self.names is None else fingerprint(self._lines(self.names))

    @staticmethod
    def _lines(file: str) -> list[str]:
        """Return the lines of a text file; form feeds and Unicode separators do not end a line."""
        try:
            text = Path(file).expanduser().read_text(encoding="utf-8")  # reads \r\n as \n
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"names={file} cannot be read as text ({error})") from error
        return text.removesuffix("\n").split("\n")

    def content(self) -> str:
        """Return a digest of the file."""
        return file_checksum(self._file())[:16]

    def _file(self) -> Path:
        path = Path(self.path).expanduser()
        if path.suffix.lower() not in _SUFFIXES:
            raise ValueError(
                f"path={self.path}: need a file that ends in {' or '.join(_SUFFIXES)}: np.savez('a.npz', x=x, y=y)"
            )
        if not path.is_file():
            raise ValueError(f"path={self.path}: no such file")
        return path

    def _arrays(self, keys: Sequence[str]) -> tuple[list[str], "Mapping[str, _Header]"]:
        """Return the names of all arrays, and the headers of those of `keys`."""
        path = self._file()
        with self._explained(path):
            present, headers = (_npz_headers if _is_npz(path) else _safetensors_headers)(path, keys)
        if missing := [key for key in keys if key not in present]:
            raise ValueError(
                f"path={self.path} has no array '{missing[0]}', only {', '.join(present[:8]) or 'nothing'}: "
                "choose with x_key=NAME and y_key=NAME"
            )
        return present, headers

    def _read(self, keys: list[str]) -> dict[str, np.ndarray]:
        path = self._file()
        present, headers = self._arrays(keys)
        needed = sum(_peak_bytes(*header) for header in headers.values())
        if needed > (free := free_bytes(torch.device("cpu"))):
            raise ValueError(
                f"path={self.path}: its arrays need {needed / 1e9:.1f} GB of memory to be read and split, but "
                f"{free / 1e9:.1f} GB are free: write fewer rows or columns, or take another machine"
            )
        if left_out := sorted({*present} - {*keys}):
            log.warning("%s: left out: the arrays %s", self.path, ", ".join(left_out))
        with self._explained(path):
            return (_read_npz if _is_npz(path) else _read_safetensors)(path, keys)

    @contextlib.contextmanager
    def _explained(self, path: Path) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # damaged bytes raise anything, also MemoryError
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(
                f"path={self.path} cannot be read as a whole {path.suffix} file ({reason[:160]}): write it again"
            ) from error

    def _examples(self, x: np.ndarray, key: str) -> Tensor:
        """Return vectors as [n, d, 1, 1], images as [n, C, H, W]."""
        return self._vectors(x, key)[:, :, None, None] if x.ndim <= 2 else self._images(x, key)

    def _images(self, x: np.ndarray, key: str) -> Tensor:
        """Convert to images [n, C, H, W] uint8."""
        channels_last = x[..., None] if x.ndim == 3 else x
        if x.dtype == np.uint8 and 0 not in x.shape and x.ndim < 5:
            if x.ndim == 3 or (x.shape[3] in _CHANNELS and x.shape[1] not in _CHANNELS):
                return torch.from_numpy(np.ascontiguousarray(channels_last.transpose(0, 3, 1, 2)))
            if x.shape[1] in _CHANNELS and x.shape[3] not in _CHANNELS:
                return torch.from_numpy(x)
        as_images = "x = (255 * x).round().astype(np.uint8), from values of 0 to 1"
        if x.dtype.kind in "iu":
            as_images = "x = x[..., :3]" if x.ndim == 4 and x.shape[3] == 4 else "x = x.astype(np.uint8)"
        raise ValueError(
            f"{self.path}: '{key}' has shape {list(x.shape)} and type {x.dtype}: need vectors [n, d], or images of "
            f"uint8, [n, H, W], [n, H, W, C] or [n, C, H, W] with 1 or 3 channels: for images {as_images}; for vectors "
            "x = x.reshape(len(x), -1)"
        )

    def _vectors(self, x: np.ndarray, key: str) -> Tensor:
        """Convert to vectors [n, d], floating; whole numbers and floats of more than 64 bits become float64."""
        if x.ndim != 2 or 0 in x.shape or x.dtype.kind not in "fiub":
            raise ValueError(
                f"{self.path}: '{key}' has shape {list(x.shape)} and type {x.dtype}: need numbers [n, d], "
                "one row per example"
            )
        is_float = x.dtype.kind == "f" and x.dtype.itemsize <= 8
        vectors = torch.from_numpy(x.astype(x.dtype.newbyteorder("=") if is_float else np.float64, copy=False))
        low, high = vectors.amin(0), vectors.amax(0)  # NaN where a column has one
        if not (low.isfinite() & high.isfinite()).all():
            row = next(i for i, values in enumerate(vectors) if not values.isfinite().all())
            column = int((~vectors[row].isfinite()).nonzero()[0])
            raise ValueError(
                f"{self.path}: '{key}' is {x[row, column]} in row {row}, column {column}: "
                "remove rows that are not finite, or fill them in"
            )
        spread, reach = float((high - low).max()), float(torch.maximum(-low, high).max())
        if 0 < spread < _LEAST or reach > 1 / _LEAST:
            size = max(spread, reach if reach > 1 / _LEAST else 0)
            raise ValueError(
                f"{self.path}: '{key}' has values of size {size:.0e}, and their products leave float64's range: "
                f"multiply them all by {1 / size:.0e}"
            )
        return vectors

    def _labels(self, y: np.ndarray, key: str, examples: int) -> np.ndarray:
        """Convert to labels [n], whole numbers or words."""
        where = f"{self.path}: '{key}' has shape {list(y.shape)} and type {y.dtype}"
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        elif y.ndim == 2 and y.dtype.kind in "fiub" and ((y == 0) | (y == 1)).all() and (y.sum(1) == 1).all():
            y = y.argmax(1)
        if y.dtype.kind == "f" and y.ndim == 1:
            if not_finite := int((~np.isfinite(y)).sum()):
                raise ValueError(f"{where}: {not_finite} labels are not finite: drop these rows")
            if (largest := float(np.abs(y).max(initial=0))) > _EXACT:  # 2^53 is outside float16's range
                raise ValueError(f"{where}: floating numbers as large as {largest:.0e} are not exact: write words")
            if np.array_equal(y, np.rint(y)):
                y = y.astype(np.int64)
        if y.dtype.kind == "S":
            y = np.char.decode(y, "utf-8", "backslashreplace")
        if y.shape != (examples,) or y.dtype.kind not in "iubU":
            several = "; choose one of several columns with y = y[:, 0]" if y.ndim == 2 else ""
            raise ValueError(f"{where}: need one whole number or word for each of {examples} examples{several}")
        return y

    def _positions(self, labels: np.ndarray, classes: np.ndarray) -> Tensor:
        """Convert labels to integers in 0..k-1."""
        position = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
        if len(unknown := labels[classes[position] != labels]):
            raise ValueError(f"{self.path}: label {unknown[0]!s} in '{self.test_y_key}' is none of '{self.y_key}'")
        return torch.from_numpy(position)


_Header = tuple[tuple[int, ...], np.dtype]  # shape and type


def _is_npz(path: Path) -> bool:
    return path.suffix.lower() == ".npz"


def _described(part: Tensor) -> str:
    c, h, w = part.shape[1:]
    return f"{c} columns" if h == w == 1 else f"images of {c}×{h}×{w}"


def _npz_headers(path: Path, keys: Sequence[str]) -> tuple[list[str], dict[str, _Header]]:
    """Return the names of all arrays, and the shapes and types of those of `keys`, from the headers.

    Raises:
        ValueError: the header of an array declares another size than the archive.
    """
    headers: dict[str, _Header] = {}
    with zipfile.ZipFile(path) as archive:
        members = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}
        for key in members.keys() & {*keys}:
            with archive.open(members[key]) as member:
                old = np.lib.format.read_magic(member) == (1, 0)
                read = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(member)
                declared = member.tell() + math.prod(shape) * dtype.itemsize
            if dtype.hasobject:
                raise ValueError(f"'{key}' holds Python objects, which only pickle could read: {key}.astype(str)")
            if declared != archive.getinfo(members[key]).file_size:
                raise ValueError(f"the header of '{key}' does not match its size")
            headers[key] = shape, dtype
    return sorted(members), headers


def _read_npz(path: Path, keys: Sequence[str]) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return {key: file[key] for key in keys}


def _safetensors_headers(path: Path, keys: Sequence[str]) -> tuple[list[str], dict[str, _Header]]:
    """Return the names, shapes and types of arrays in a .safetensors file, as `_npz_headers` does."""
    dtypes = {"F16": np.float16, "F32": np.float32, "F64": np.float64, "U8": np.uint8}
    with safe_open(path, framework="pt") as file:
        present, headers = sorted(file.keys()), dict[str, _Header]()
        for key in {*present} & {*keys}:
            stored = file.get_slice(key)
            headers[key] = tuple(stored.get_shape()), np.dtype(dtypes.get(stored.get_dtype(), np.int64))
    return present, headers


def _read_safetensors(path: Path, keys: Sequence[str]) -> dict[str, np.ndarray]:
    with safe_open(path, framework="pt") as file:
        return {key: _numpy(file.get_tensor(key)) for key in keys}


def _peak_bytes(shape: Sequence[int], dtype: np.dtype) -> float:
    """Return the peak memory of an array in bytes: values are converted, words are sorted, and splits are copies."""
    count = math.prod(shape)
    if dtype.kind in "US":
        return 3.0 * count * dtype.itemsize
    if (dtype.kind == "f" and dtype.itemsize <= 8 and dtype.isnative) or (dtype == np.uint8 and len(shape) > 2):
        return 2.0 * count * dtype.itemsize
    return count * (8.0 + max(8, dtype.itemsize))


def _numpy(tensor: Tensor) -> np.ndarray:
    """Convert to an array; bfloat16 and 8-bit floats, which NumPy lacks, become float32, which is exact."""
    known = not tensor.is_floating_point() or tensor.dtype in (torch.float16, torch.float32, torch.float64)
    return (tensor if known else tensor.float()).numpy()
