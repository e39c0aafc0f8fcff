"""Labelled arrays: images, or vectors such as averages of word vectors, hidden states or tables of measurements."""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from erasure.dataset import LabelledImages, RawImages, Source
from erasure.store.checked_files import file_checksum

log = logging.getLogger(__name__)

_CHANNELS = (1, 3)
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
        y_key: name of the array of their labels: whole numbers or words [n] or [n, 1]. The classes are the distinct
            labels, in order.
        test_x_key: name of the array of examples held out for testing; None to hold out `test_fraction` of the others.
        test_y_key: name of the array of their labels.
    """

    path: str
    x_key: str = "x"
    y_key: str = "y"
    test_x_key: str | None = None
    test_y_key: str | None = None

    version = 1
    slow_to_load: ClassVar[bool] = False
    locations: ClassVar[tuple[str, ...]] = ("path",)

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
        arrays = self._read([key for pair in pairs for key in pair])
        examples = [self._examples(arrays[x_key], x_key) for x_key, _ in pairs]
        if len({part.shape[1:] for part in examples}) > 1:
            one, other = (_described(part) for part in examples)
            raise ValueError(f"{self.path}: '{self.test_x_key}' has {other}, but '{self.x_key}' has {one}")
        labels = [self._labels(arrays[y_key], y_key, len(x)) for (_, y_key), x in zip(pairs, examples, strict=True)]
        classes = np.unique(labels[0])
        train, *test = (LabelledImages(x, self._positions(y, classes)) for x, y in zip(examples, labels, strict=True))
        bounded = arrays[self.x_key].ndim > 2
        return RawImages(train, test[0] if test else None, tuple(map(str, classes)), bounded=bounded)

    def content(self) -> str:
        """Return a digest of the file."""
        return file_checksum(self._file())[:16]

    def _file(self) -> Path:
        path = Path(self.path).expanduser()
        if path.suffix not in (".npz", ".safetensors"):
            raise ValueError(
                f"path={self.path}: need a file that ends in .npz or .safetensors: np.savez('a.npz', x=x, y=y)"
            )
        if not path.is_file():
            raise ValueError(f"path={self.path}: no such file")
        return path

    def _read(self, keys: Sequence[str]) -> dict[str, np.ndarray]:
        path = self._file()
        with self._explained(path), _opened(path) as (present, array):
            arrays = {key: array(key) for key in keys if key in present}
        if missing := [key for key in keys if key not in present]:
            raise ValueError(
                f"path={self.path} has no array '{missing[0]}', only {', '.join(present[:8]) or 'nothing'}: "
                "choose with x_key=NAME and y_key=NAME"
            )
        if left_out := sorted({*present} - {*keys}):
            log.warning("%s: left out: the arrays %s", self.path, ", ".join(left_out))
        return arrays

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
        if 0 not in x.shape:
            if x.ndim == 2 and x.dtype.kind in "fiub":
                return self._vectors(x, key)[:, :, None, None]
            if x.ndim in (3, 4) and x.dtype == np.uint8:
                channels_last = x[..., None] if x.ndim == 3 else x
                if x.ndim == 3 or (x.shape[3] in _CHANNELS and x.shape[1] not in _CHANNELS):
                    return torch.from_numpy(np.ascontiguousarray(channels_last.transpose(0, 3, 1, 2)))
                if x.shape[1] in _CHANNELS and x.shape[3] not in _CHANNELS:
                    return torch.from_numpy(x)
        raise ValueError(
            f"{self.path}: '{key}' has shape {list(x.shape)} and type {x.dtype}: need vectors [n, d] of numbers "
            "(x = x.reshape(len(x), -1)), or images of uint8, [n, H, W], [n, H, W, C] or [n, C, H, W] with 1 or 3 "
            "channels"
        )

    def _vectors(self, x: np.ndarray, key: str) -> Tensor:
        """Convert to vectors [n, d], floating; numbers of other types than float16 to float64 become float64."""
        is_kept = x.dtype.kind == "f" and x.dtype.itemsize <= 8
        vectors = torch.from_numpy(x.astype(x.dtype.newbyteorder("=") if is_kept else np.float64, copy=False))
        low, high = (float(end) for end in vectors.aminmax())  # NaN if one value is
        if not np.isfinite([low, high]).all():
            row, column = (~vectors.isfinite()).nonzero()[0].tolist()
            raise ValueError(
                f"{self.path}: '{key}' is {x[row, column]} in row {row}, column {column}: "
                "remove rows that are not finite, or fill them in"
            )
        largest = max(-low, high)
        if largest and not _LEAST <= largest <= 1 / _LEAST:
            raise ValueError(
                f"{self.path}: '{key}' has values of size {largest:.0e}, and their products leave float64's range: "
                f"multiply them all by {1 / largest:.0e}"
            )
        return vectors

    def _labels(self, y: np.ndarray, key: str, examples: int) -> np.ndarray:
        """Return labels [n], whole numbers or words."""
        labels = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        if labels.shape != (examples,) or y.dtype.kind not in "iubU":
            raise ValueError(
                f"{self.path}: '{key}' has shape {list(y.shape)} and type {y.dtype}: need one whole number or word for "
                f"each of {examples} examples, such as y.astype(int), y.argmax(1) of one-hot rows, or y.astype(str)"
            )
        return labels

    def _positions(self, labels: np.ndarray, classes: np.ndarray) -> Tensor:
        """Convert labels to integers in 0..k-1."""
        position = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
        if len(unknown := labels[classes[position] != labels]):
            raise ValueError(f"{self.path}: label {unknown[0]!s} in '{self.test_y_key}' is none of '{self.y_key}'")
        return torch.from_numpy(position)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[list[str], Any]]:
    """Open a file; yield the names of its arrays in order, and the function that reads one."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            yield sorted(file.files), lambda key: np.asarray(file[key])
    else:
        with safe_open(path, framework="pt") as file:
            yield sorted(file.keys()), lambda key: _numpy(file.get_tensor(key))


def _described(part: Tensor) -> str:
    c, h, w = part.shape[1:]
    return f"{c} columns" if h == w == 1 else f"images of {c}×{h}×{w}"


def _numpy(tensor: Tensor) -> np.ndarray:
    """Convert to an array; bfloat16, which NumPy lacks, becomes float32, which is exact."""
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
