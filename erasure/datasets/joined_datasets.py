"""Several datasets as one task, for comparing the information of their examples."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from erasure.dataset import LabelledImages, Published, RawImages, Source
from erasure.optional_packages import needs
from erasure.splits import stratified_split
from erasure.store.checked_files import fingerprint

with needs("torchvision"):
    from torchvision.transforms.v2 import functional as F

_SAMPLE_SEED = 0  # seed of `images_per_part`, because the selection does not depend on splits


@dataclass(frozen=True, kw_only=True)
class JoinedDatasets(Source):
    """8-bit images of several datasets with the same classes, resized to one size, 0..255.

    The test split consists of the official test splits of the parts, if they have any. Settings of the parts for
    splits, flips and normalisation have no effect.

    Args:
        parts: datasets by name, in order.
        size: side in pixels to which all images are resized (bilinear, antialiased).
        channels: 3 for colour, with grey images repeated; 1 for grey, with colours converted to luminance
            (0.2989 R + 0.587 G + 0.114 B, as in torchvision).
        images_per_part: maximum number of training and of test images of each part, drawn as a fixed stratified sample.
            It is meant for parts of very different size; None for all images.

    Raises:
        ValueError: no parts, or a number out of range.
    """

    parts: Mapping[str, Source]
    size: int
    channels: Literal[1, 3]
    images_per_part: int | None

    version = 1
    locations: ClassVar[tuple[str, ...]] = ("parts",)  # `content` identifies parts by content, not by path

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("parts={}: a mixture needs at least one dataset")
        for name in ("size", "images_per_part"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name}={value}: must be at least 1")

    def content(self) -> str:
        """Return a digest of the parts' contents, in order."""
        described: list[object] = [[name, part.stored_identity()] for name, part in self.parts.items()]
        if any(part.locations and not isinstance(part, Published) for part in self.parts.values()):
            described.append("by name")  # names from files were once matched by number
        return fingerprint(described)

    def fetch(self) -> None:
        for part in self.parts.values():
            part.fetch()

    def load(self) -> RawImages:
        """Concatenate the images of the parts; `RawImages.parts` has the number of each.

        Raises:
            ValueError: parts with other classes than the first, some with and some without an official test split, or
                images that are not of 8 bits.
        """
        raw = {name: part.load() for name, part in self.parts.items()}
        first, names = next((name, part.class_names) for name, part in raw.items())
        for name, part in raw.items():
            if part.train.images.dtype != torch.uint8:
                raise ValueError(f"{name} holds numbers of {part.train.images.dtype}: choose 8-bit images")
            if part.class_names != names:
                shortest = min(len(names), len(part.class_names)) - 1
                start = next((j for j in range(shortest) if part.class_names[j] != names[j]), shortest)
                one, other = _shown(part.class_names, start), _shown(names, start)
                raise ValueError(
                    f"the classes of {name} are {one}, but those of {first} are {other}: "
                    "give all parts the same names of classes in the same order"
                )
        held_out = [self._brought(part.test, part.max_value) for part in raw.values() if part.test is not None]
        if held_out and len(held_out) < len(raw):
            official = ", ".join(name for name, part in raw.items() if part.test is not None)
            raise ValueError(f"only {official} has an official test split: choose parts that all have one, or none")
        train = [self._brought(part.train, part.max_value) for part in raw.values()]
        counts = {name: len(part) for name, part in zip(raw, train, strict=True)}
        return RawImages(_joined(train), _joined(held_out) if held_out else None, names, parts=counts)

    def _brought(self, part: LabelledImages, max_value: int) -> LabelledImages:
        """Sample and resize the images of a part, [n, channels, size, size], 0..255."""
        if self.images_per_part is not None and len(part) > self.images_per_part:
            part = part[stratified_split(part.labels, self.images_per_part, _SAMPLE_SEED)[1]]
        images = _eight_bits(part.images, max_value)
        if images.shape[1] != self.channels:
            images = F.grayscale_to_rgb(images) if self.channels == 3 else F.rgb_to_grayscale(images)
        if tuple(images.shape[2:]) != (self.size, self.size):
            images = F.resize(images, [self.size, self.size], antialias=True)
        return LabelledImages(images.contiguous(), part.labels)


def _shown(names: tuple[str, ...], start: int) -> str:
    """Return four names from number `start` on."""
    end = start + 4
    listed = [*["…"][: start > 0], *names[start:end], *["…"][: end < len(names)]]
    return ", ".join(listed) + (f" ({len(names)} in all)" if "…" in listed else "")


def _joined(parts: list[LabelledImages]) -> LabelledImages:
    return LabelledImages(torch.cat([part.images for part in parts]), torch.cat([part.labels for part in parts]))


def _eight_bits(images: Tensor, max_value: int) -> Tensor:
    """Scale uint8 images to 0..255."""
    return images if max_value == 255 else (images.float() * (255 / max_value)).round().to(torch.uint8)
