"""Datasets with one folder per class: <root>/<split>/<class>/*.png, *.jpg and other formats."""

import hashlib
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor

from erasure import image_decoding
from erasure.dataset import LabelledImages, RawImages, Source
from erasure.store.checked_files import file_checksum

log = logging.getLogger(__name__)

_TRAIN = ("train", "training")
_HELD_OUT = ("test", "testing", "val", "valid", "validation")  # in order of preference


@dataclass(frozen=True, kw_only=True)
class ImageFolder(Source):
    """Images below <root>/train/<class>/ and, if there is one, <root>/test/<class>/ (or val, valid, validation).

    Upper case and the names training and testing are accepted. An image in a deeper folder belongs to the class whose
    folder contains it. Links are followed. Hidden files and folders, files that are no images, and folders of other
    names are left out, and a warning counts them. See `erasure.image_decoding.SUFFIXES` for the formats, and
    `erasure.image_decoding.decode` for palettes, CMYK, transparency and orientation.

    Args:
        root: the folder of the splits.
        size: side in pixels to which images are resized; None if all have the same size.
        channels: 3 for colour, 1 for grayscale; images of the other kind are converted.
    """

    root: str
    size: int | None
    channels: Literal[1, 3]
    version = 1
    locations: ClassVar[tuple[str, ...]] = ("root",)

    def load(self) -> RawImages:
        if self.channels not in (1, 3):
            raise ValueError(f"channels={self.channels}: choose 3 for colour or 1 for grayscale")
        if self.size is not None and self.size < 1:
            raise ValueError(f"size={self.size}: the side of images in pixels is at least 1")
        folders = self._folders()
        train, *held_out = map(self._split, folders)
        classes = sorted({*train.values()})
        if len(classes) < 2:
            loose = sum(path.suffix.lower() in image_decoding.SUFFIXES for path in folders[0].iterdir())
            hint = f"; {loose} images lie in train/ itself: move them to train/<class>/" if loose else ""
            raise ValueError(
                f"root={self.root}: found {len(classes)} class with images in train/, need at least 2 folders{hint}"
            )
        test = held_out[0] if held_out else {}
        if unknown := sorted({*test.values()} - set(classes)):
            raise ValueError(f"{folders[1]} has classes that train/ lacks: {', '.join(unknown[:5])}")
        self._warn_of_what_is_left_out(folders)
        if held_out and not test:
            log.warning("%s: no image in a class folder; a part of %s is held out instead", folders[1], folders[0])
        return RawImages(self._read(train, classes), self._read(test, classes) if test else None, tuple(classes))

    def content(self) -> str:
        """Return a digest of the relative path and content of every image of the splits that are read."""
        content = hashlib.sha256(f"decoded {image_decoding.VERSION}\n".encode())
        for folder in self._folders():
            for path in self._split(folder):
                content.update(f"{path.relative_to(self._root)}\0{file_checksum(path)}\n".encode())
        return content.hexdigest()[:16]

    def example_names(self, index: Tensor) -> list[str]:
        """Return the files of the training examples at these positions [n], relative to `root`: train/cat/007.png."""
        files = [*self._split(self._folders()[0])]
        return [files[i].relative_to(self._root).as_posix() for i in index.tolist()]

    @property
    def _root(self) -> Path:
        return Path(self.root).expanduser()

    def _folders(self) -> list[Path]:
        """Return the folder of training images and, if there is one, the first folder of held-out images."""
        by_name = {path.name.lower(): path for path in sorted(self._root.glob("*")) if path.is_dir()}  # test, not Test
        train, held_out = ([by_name[name] for name in names if name in by_name] for names in (_TRAIN, _HELD_OUT))
        if not train:
            raise ValueError(
                f"root={self.root}: no folder {self._root / 'train'}; "
                f"expected images in {self.root}/train/<class>/*.png or *.jpg"
            )
        return [train[0], *held_out[:1]]

    def _split(self, folder: Path) -> dict[Path, str]:
        """Return the images of a split, in order, and their classes."""
        images = {path: path.relative_to(folder).parts[0] for path in _images(folder)}
        if irregular := next((path for path in images if not path.is_file()), None):
            raise ValueError(f"{irregular} is no regular file, or a link to nothing: replace or delete it")
        classes = {path.name for path in folder.iterdir() if path.is_dir() and not _is_hidden(path.name)}
        if empty := sorted(classes - {*images.values()}):
            others = _counts(_reason(path, folder) for path in _files(folder / empty[0]))
            has = f", but {others}" if others else ""
            raise ValueError(f"class folder {folder / empty[0]} has no images{has}: put images there, or remove it")
        return images

    def _warn_of_what_is_left_out(self, splits: list[Path]) -> None:
        for folder in splits:
            images = _images(folder)
            if left_out := _counts(_reason(path, folder) for path in {*_files(folder)} - {*images}):
                log.warning("%s: left out: %s", folder, left_out)
            if deeper := [path for path in images if len(path.relative_to(folder).parts) > 2]:
                log.warning(
                    "%s: %d images in deeper folders belong to the class whose folder they are below: %s is one",
                    *(folder, len(deeper), deeper[0]),
                )
        for other in sorted(self._root.iterdir()):
            if other.is_dir() and other not in splits and not _is_hidden(other.name) and (n := len(_images(other))):
                names = " and ".join(f"{folder.name}/" for folder in splits)
                log.warning("%s: left out: %d images, as %s are read", other, n, names)

    def _read(self, images: dict[Path, str], classes: list[str]) -> LabelledImages:
        files = ((str(path), path) for path in images)
        pixels = image_decoding.decode_all(files, size=self.size, channels=self.channels)
        label = {name: j for j, name in enumerate(classes)}
        return LabelledImages(pixels, torch.tensor([label[name] for name in images.values()]))


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in _files(folder) if _reason(path, folder) is None)


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files below a folder; links are followed, unless they lead to a folder that contains them."""
    for place, folders, names in os.walk(folder, followlinks=True):
        real = Path(place).resolve()
        folders[:] = [name for name in folders if not real.is_relative_to((Path(place) / name).resolve())]
        yield from (Path(place) / name for name in names)


def _reason(path: Path, folder: Path) -> str | None:
    """Return why a file of a split is left out; None for an image that is read."""
    inner = path.relative_to(folder).parts
    if any(_is_hidden(part) for part in inner):
        return "hidden files"
    suffix = path.suffix.lower()
    if suffix not in image_decoding.SUFFIXES:
        return f"{suffix} files" if suffix[1:].isalnum() else "files of other kinds"
    return None if len(inner) > 1 else "images outside class folders"


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"  # of archives made on a Mac


def _counts(reasons: Iterable[str | None]) -> str:
    return ", ".join(f"{n} {reason}" for reason, n in sorted(Counter(map(str, reasons)).items()))
