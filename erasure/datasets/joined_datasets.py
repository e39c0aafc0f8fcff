"""Several datasets as one task, for comparing the information of their examples."""

import itertools
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
    """Images of several datasets with the same number of classes, resized to one size.

    Classes correspond by number. Parts have the same names of classes in the same order, or no name in common.

    If every part has an official test split, the test split of the mixture consists of these. Otherwise all images of
    all parts, official test images included, are pooled and split like those of any dataset. Settings of the parts for
    splits, flips and normalisation have no effect. Images are 8-bit, 0..255.

    Args:
        parts: datasets by name, in order.
        size: side in pixels to which all images are resized (bilinear, antialiased).
        channels: 3 for colour, with grey images repeated; 1 for grey, with colours converted to luminance
            (0.2989 R + 0.587 G + 0.114 B, as in torchvision).
        images_per_part: maximum number of training and of test images (or of pooled images) of each part, drawn as a
            fixed stratified sample. It is meant for parts of very different size; None for all images.

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
            ValueError: parts with different numbers of classes, with shared class names that do not correspond, or
                with vectors or floating images.
        """
        raw = {name: part.load() for name, part in self.parts.items()}
        self._require_fitting(raw)
        _require_corresponding({name: part.class_names for name, part in raw.items()})
        official = all(part.test is not None for part in raw.values())
        train = [self._brought(_training(part, official), part.max_value) for part in raw.values()]
        held_out = [self._brought(part.test, part.max_value) for part in raw.values() if official and part.test]
        return RawImages(
            _joined(train),
            _joined(held_out) if official else None,
            tuple("/".join(dict.fromkeys(names)) for names in zip(*(p.class_names for p in raw.values()), strict=True)),
            parts={name: len(part) for name, part in zip(raw, train, strict=True)},
        )

    def _require_fitting(self, raw: Mapping[str, RawImages]) -> None:
        first, *others = raw
        k = len(raw[first].class_names)
        for name in others:
            if (other := len(raw[name].class_names)) != k:
                raise ValueError(
                    f"{first} has {k} classes, {name} has {other}: all parts of a mixture must have the same number "
                    "of classes"
                )
        for name, part in raw.items():
            if not part.bounded or part.train.images.is_floating_point():
                kind = "floating images" if part.bounded else "vectors"
                raise ValueError(f"{name} holds {kind}, which cannot be joined: choose 8-bit images")

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


def _require_corresponding(names: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse parts whose classes do not correspond by number: names in another order, or numbers out of order."""
    for (part, listed), (other, others) in itertools.combinations(names.items(), 2):
        if shared := sorted({*listed} & {*others}) if listed != others else []:
            raise ValueError(
                f"class {shared[0]!r} is in {part} and in {other}, which have other classes or another order: give "
                "both the same names of classes in the same order, or no name in common"
            )
    for part, listed in names.items() if len({*names.values()}) > 1 else ():
        if all(map(str.isdecimal, listed)) and [*map(int, listed)] != sorted(map(int, listed)):
            raise ValueError(
                f"{part} has its classes in the order {', '.join(listed[:4])}, …, but corresponds to the other parts "
                "by number: name them 00, 01, …"
            )


def _training(raw: RawImages, official: bool) -> LabelledImages:
    return raw.train if official or raw.test is None else _joined([raw.train, raw.test])


def _joined(parts: list[LabelledImages]) -> LabelledImages:
    return LabelledImages(torch.cat([part.images for part in parts]), torch.cat([part.labels for part in parts]))


def _eight_bits(images: Tensor, max_value: int) -> Tensor:
    """Scale uint8 images to 0..255."""
    return images if max_value == 255 else (images.float() * (255 / max_value)).round().to(torch.uint8)
