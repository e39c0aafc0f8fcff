"""Datasets with one folder per class: <root>/<split>/<class>/*.png, *.jpg and other formats."""

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor

from erasure import image_decoding
from erasure.dataset import LabelledImages, RawImages, Source
from erasure.store.checked_files import file_checksum

log = logging.getLogger(__name__)

_HELD_OUT = ("test", "val", "valid", "validation")  # in order of preference


@dataclass(frozen=True, kw_only=True)
class ImageFolder(Source):
    """Images below <root>/train/<class>/ and, if there is one, <root>/test/<class>/ (or val, valid, validation).

    An image in a deeper folder belongs to the class whose folder contains it. A class folder may be a link, and so may
    images, but no deeper folder. Hidden files are left out. A warning names other folders and counts files that are no
    images. See `erasure.image_decoding.SUFFIXES` for the formats, and `erasure.image_decoding.decode` for palettes,
    CMYK, transparency and orientation.

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
        folders = self._folders()
        (train, *held_out), others = zip(*map(_split, folders), strict=True)
        classes = sorted({*train.values()})
        if len(classes) < 2:
            raise ValueError(f"root={self.root}: found one class in train/, need at least 2 folders")
        for test in held_out:
            if unknown := sorted({*test.values()} - {*classes}):
                raise ValueError(f"{folders[1]} has classes that train/ lacks: {', '.join(unknown[:5])}")
        unread = [path.name for path in sorted(self._root.iterdir()) if path.is_dir() and path not in folders]
        left_out = [f"{name}/" for name in unread if not _is_hidden(name)]
        if files := sum(others):
            left_out.append(f"{files} files that are no images in a class folder")
        if left_out:
            log.warning("%s: left out: %s", self.root, ", ".join(left_out))
        parts = [self._read(images, classes) for images in (train, *held_out)]
        return RawImages(parts[0], parts[1] if held_out else None, tuple(classes))

    def content(self) -> str:
        """Return a digest of the relative path and content of every image of the splits that are read."""
        content = hashlib.sha256(f"decoded {image_decoding.VERSION}\n".encode())
        for folder in self._folders():
            for path in _split(folder)[0]:
                content.update(f"{path.relative_to(self._root)}\0{file_checksum(path)}\n".encode())
        return content.hexdigest()[:16]

    def example_names(self, index: Tensor) -> list[str]:
        """Return the files of the training examples at these positions [n], relative to `root`: train/cat/007.png."""
        files = [*_split(self._folders()[0])[0]]
        return [files[i].relative_to(self._root).as_posix() for i in index.tolist()]

    @property
    def _root(self) -> Path:
        return Path(self.root).expanduser()

    def _folders(self) -> list[Path]:
        """Return the folder of training images and, if there is one, the first folder of held-out images.

        Raises:
            ValueError: no training images, or a held-out split in a folder of a similar name.
        """
        train = self._root / "train"
        if not train.is_dir():
            raise ValueError(
                f"root={self.root}: no folder {train}; expected images in {self.root}/train/<class>/*.png or *.jpg"
            )
        held_out = [self._root / name for name in _HELD_OUT if (self._root / name).is_dir()]
        for path in sorted(self._root.iterdir()) if not held_out else ():
            name = path.name.lower().replace("testing", "test")
            if name in _HELD_OUT and path.is_dir():
                raise ValueError(f"{path}: the folder of this split must be called {name}: rename it, or move it away")
        return [train, *held_out[:1]]

    def _read(self, images: dict[Path, str], classes: list[str]) -> LabelledImages:
        files = ((str(path), path) for path in images)
        pixels = image_decoding.decode_all(files, size=self.size, channels=self.channels)
        label = {name: j for j, name in enumerate(classes)}
        return LabelledImages(pixels, torch.tensor([label[name] for name in images.values()]))


def _split(folder: Path) -> tuple[dict[Path, str], int]:
    """Return the images of a split, in order, with their classes; and the number of other files.

    Raises:
        ValueError: no images in a class folder or in the split, a link to a folder in a class folder, or an image that
            is no file.
    """
    images: dict[Path, str] = {}
    others = sum(path.is_file() and not _is_hidden(path.name) for path in folder.iterdir())
    for place in sorted(path for path in folder.iterdir() if path.is_dir() and not _is_hidden(path.name)):
        visible = [path for path in place.rglob("*") if not any(map(_is_hidden, path.relative_to(place).parts))]
        if link := next((path for path in sorted(visible) if path.is_symlink() and path.is_dir()), None):
            raise ValueError(f"{link} is a link to a folder, which is not read: copy the folder, or remove it")
        found = sorted(path for path in visible if path.suffix.lower() in image_decoding.SUFFIXES)
        if not found:
            raise ValueError(f"class folder {place} has no images: put images there, or remove it")
        if irregular := next((path for path in found if not path.is_file()), None):
            raise ValueError(f"{irregular} is no regular file, or a link to nothing: replace or delete it")
        others += sum(path.is_file() for path in visible) - len(found)
        images |= dict.fromkeys(found, place.name)
    if not images:
        raise ValueError(f"{folder} has no class folders: put images in {folder}/<class>/, or rename it")
    return images, others


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"  # of archives made on a Mac
