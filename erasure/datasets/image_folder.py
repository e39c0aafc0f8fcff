"""Any dataset kept as one folder per class: <root>/<split>/<class>/*.png or *.jpg."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch

from erasure import image_decoding
from erasure.dataset import LabelledImages, RawImages, Source
from erasure.store.checked_files import file_checksum

_SUFFIXES = {".png", ".jpg", ".jpeg"}
_HELD_OUT = ("test", "val", "valid", "validation")


@dataclass(frozen=True, kw_only=True)
class ImageFolder(Source):
    """Images in <root>/train/<class>/ and, if there is one, <root>/test/<class>/ (or val, valid, validation).

    `erasure.image_decoding.decode` says how 16-bit values, palettes, CMYK, transparency and orientation are read.

    Args:
        root: the folder that holds the splits.
        size: side in pixels that images are resized to; None where all have one size already.
        channels: 3 for colour, 1 for grayscale; images of the other kind are converted.
    """

    root: str
    size: int | None
    channels: Literal[1, 3]
    version = 1
    locations: ClassVar[tuple[str, ...]] = ("root",)

    def load(self) -> RawImages:
        train = self._split("train")
        held_out = next((name for name in _HELD_OUT if (Path(self.root) / name).is_dir()), None)
        classes = sorted({path.parent.name for path in train})
        if len(classes) < 2:
            loose = sum(path.suffix.lower() in _SUFFIXES for path in (Path(self.root) / "train").iterdir())
            hint = f"; {loose} images lie in train/ itself: move them to train/<class>/" if loose else ""
            raise ValueError(
                f"root={self.root}: found {len(classes)} class with images in train/, need at least 2 folders{hint}"
            )
        test = self._split(held_out) if held_out else []
        if unknown := sorted({path.parent.name for path in test} - set(classes)):
            raise ValueError(f"{self.root}/{held_out} has classes that train/ lacks: {', '.join(unknown[:5])}")
        return RawImages(self._read(train, classes), self._read(test, classes) if test else None, tuple(classes))

    def content(self) -> str:
        """Digest of every image's relative path and content."""
        content = hashlib.sha256(f"decoded {image_decoding.VERSION}\n".encode())
        for split in ("train", *_HELD_OUT):
            if split == "train" or (Path(self.root) / split).is_dir():
                for path in self._split(split):
                    content.update(f"{path.relative_to(self.root)}\0{file_checksum(path)}\n".encode())
        return content.hexdigest()[:16]

    def _split(self, split: str) -> list[Path]:
        folder = Path(self.root) / split
        if not folder.is_dir():
            raise ValueError(
                f"root={self.root}: no folder {folder}; expected images in {self.root}/train/<class>/*.png or *.jpg"
            )
        images = sorted(path for path in folder.glob("*/*") if path.suffix.lower() in _SUFFIXES)
        classes = {path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")}
        if empty := sorted(classes - {path.parent for path in images}):
            raise ValueError(f"class folder {empty[0]} has no *.png or *.jpg: put images there, or remove it")
        return images

    def _read(self, paths: list[Path], classes: list[str]) -> LabelledImages:
        files = ((str(path), path) for path in paths)
        images = image_decoding.decode_all(files, size=self.size, channels=self.channels)
        label = {name: j for j, name in enumerate(classes)}
        return LabelledImages(images, torch.tensor([label[path.parent.name] for path in paths]))
