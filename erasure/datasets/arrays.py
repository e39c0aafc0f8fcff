"""Any matrix of vectors with labels: word-vector averages, hidden representations, tables of measurements."""

import contextlib
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
from erasure.store.checked_files import file_checksum

_SUFFIXES = (".npz", ".safetensors")
_LEAST = 1e-75  # erasers multiply covariances, fourth powers


@dataclass(frozen=True, kw_only=True)
class Arrays(Source):
    """Vectors [n, d] and labels [n] from one .npz file (opened without pickle) or .safetensors file.

    A vector is kept as d channels of one point, [n, d, 1, 1], so that all that is written for images works on
    it: coordinates are standardised one by one for training, as channels are, and there is nothing to crop or
    flip. Its values may be any numbers.

    Args:
        path: the file.
        x_key: name in it of the training vectors, [n, d] numbers.
        y_key: of their labels, [n] whole numbers or words; the classes are the different ones, in order.
        test_x_key: of the vectors held out for testing; None to hold out `test_fraction` of the others.
        test_y_key: of their labels.
        names: a text file with a line for each training vector, in order: what figures call it; None to number them.
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
        held_out = {} if options["test_x_key"] is None else {"test_fraction": "dataset.test_x_key=null"}
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
        arrays = self._read([key for pair in pairs for key in pair])
        vectors = [self._vectors(arrays[x_key], x_key) for x_key, _ in pairs]
        if len({part.shape[1] for part in vectors}) > 1:
            d, other = (part.shape[1] for part in vectors)
            raise ValueError(f"{self.path}: '{self.test_x_key}' has {other} columns, but '{self.x_key}' has {d}")
        labels = [self._labels(arrays[y_key], y_key, len(x)) for (_, y_key), x in zip(pairs, vectors, strict=True)]
        self.row_names(torch.tensor([len(vectors[0]) - 1]))  # before anything is computed
        classes = np.unique(labels[0])
        train, *test = (
            LabelledImages(x[:, :, None, None], self._positions(y, classes))
            for x, y in zip(vectors, labels, strict=True)
        )
        return RawImages(train, test[0] if test else None, tuple(map(str, classes)), bounded=False)

    def row_names(self, index: Tensor) -> list[str]:
        """Return names of the training vectors at these positions [n] in the file: "row 7", or as `names` has it.

        Raises ValueError where `names` is no text file, or has too few lines.
        """
        if self.names is None:
            return [f"row {i}" for i in index.tolist()]
        try:
            lines = Path(self.names).expanduser().read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"names={self.names} cannot be read as text ({error})") from error
        if len(lines) <= (last := int(index.max())):
            raise ValueError(
                f"names={self.names} has {len(lines)} lines, and a vector is at place {last} from 0: give one "
                f"line for each row of '{self.x_key}'"
            )
        return [lines[i] for i in index.tolist()]

    def content(self) -> str:
        """Digest of the file."""
        return file_checksum(self._file())[:16]

    def _file(self) -> Path:
        path = Path(self.path).expanduser()
        if path.suffix not in _SUFFIXES:
            raise ValueError(f"path={self.path}: need a file that ends in {' or '.join(_SUFFIXES)}")
        if not path.is_file():
            raise ValueError(f"path={self.path}: no such file")
        return path

    def _read(self, keys: list[str]) -> dict[str, np.ndarray]:
        path = self._file()
        numpy = path.suffix == ".npz"
        with self._explained(path):
            present, needed = (_npz_sizes if numpy else _safetensors_sizes)(path, keys)
        if missing := [key for key in keys if key not in present]:
            raise ValueError(
                f"path={self.path} has no array '{missing[0]}', only {', '.join(present[:8]) or 'nothing'}: "
                "choose with x_key=NAME and y_key=NAME"
            )
        if needed > (free := free_bytes(torch.device("cpu"))):
            raise ValueError(
                f"path={self.path}: its arrays need {needed / 1e9:.1f} GB of memory to be read and split, but "
                f"{free / 1e9:.1f} GB are free: write fewer rows or columns, or take another machine"
            )
        with self._explained(path):
            return (_read_npz if numpy else _read_safetensors)(path, keys)

    @contextlib.contextmanager
    def _explained(self, path: Path) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # damaged bytes raise anything, also MemoryError
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(
                f"path={self.path} cannot be read as a whole {path.suffix} file ({reason[:160]}): write it again"
            ) from error

    def _vectors(self, x: np.ndarray, key: str) -> Tensor:
        """[n, d], floating; whole numbers and more than 64 bits become float64. Any byte order will do."""
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
        """[n], whole numbers or words."""
        if y.dtype.kind == "f" and np.array_equal(y, np.rint(y)):
            y = y.astype(np.int64)
        if y.shape != (examples,) or y.dtype.kind not in "iubUS":
            raise ValueError(
                f"{self.path}: '{key}' has shape {list(y.shape)} and type {y.dtype}: need one whole number or word "
                f"for each of {examples} examples"
            )
        return y

    def _positions(self, labels: np.ndarray, classes: np.ndarray) -> Tensor:
        """Labels as integers in 0..k-1."""
        position = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
        if len(odd := labels[classes[position] != labels]):
            raise ValueError(f"{self.path}: label {odd[0]!s} in '{self.test_y_key}' is none of '{self.y_key}'")
        return torch.from_numpy(position)


def _npz_sizes(path: Path, keys: Sequence[str]) -> tuple[list[str], float]:
    """Return the names of all arrays, and the bytes that those of `keys` need, from the headers alone.

    Raises:
        ValueError: an array's header declares another size than the archive does.
    """
    needed = 0.0
    with zipfile.ZipFile(path) as archive:
        members = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}
        for key in members.keys() & {*keys}:
            with archive.open(members[key]) as member:
                old = np.lib.format.read_magic(member) == (1, 0)
                read = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(member)
                declared = member.tell() + math.prod(shape) * dtype.itemsize
            if dtype.hasobject:
                raise ValueError("it holds Python objects, which only pickle could read")
            if declared != archive.getinfo(members[key]).file_size:
                raise ValueError(f"the header of '{key}' does not match its size")
            needed += _peak_bytes(math.prod(shape), dtype)
    return sorted(members), needed


def _read_npz(path: Path, keys: Sequence[str]) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return {key: file[key] for key in keys}


def _safetensors_sizes(path: Path, keys: Sequence[str]) -> tuple[list[str], float]:
    """Return the same for a .safetensors file, which holds no compressed data."""
    needed, dtypes = 0.0, {"F16": np.float16, "F32": np.float32, "F64": np.float64}
    with safe_open(path, framework="pt") as file:
        present = sorted(file.keys())
        for key in {*present} & {*keys}:
            stored = file.get_slice(key)
            needed += _peak_bytes(math.prod(stored.get_shape()), np.dtype(dtypes.get(stored.get_dtype(), np.int64)))
    return present, needed


def _read_safetensors(path: Path, keys: Sequence[str]) -> dict[str, np.ndarray]:
    with safe_open(path, framework="pt") as file:
        return {key: _numpy(file.get_tensor(key)) for key in keys}


def _peak_bytes(count: int, dtype: np.dtype) -> float:
    """Return the peak memory of `count` values: converted ones exist in both types, and words are sorted.

    Splitting copies the data.
    """
    if dtype.kind in "US":
        return 3.0 * count * dtype.itemsize
    if dtype.kind == "f" and dtype.itemsize <= 8 and dtype.isnative:
        return 2.0 * count * dtype.itemsize
    return count * (8.0 + max(8, dtype.itemsize))


def _numpy(tensor: Tensor) -> np.ndarray:
    """Return the same numbers; bfloat16 and 8-bit floats, which NumPy lacks, in float32, which holds them exactly."""
    known = not tensor.is_floating_point() or tensor.dtype in (torch.float16, torch.float32, torch.float64)
    return (tensor if known else tensor.float()).numpy()
