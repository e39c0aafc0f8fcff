"""A dataset restricted to some of its classes, as a dataset of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from erasure.source import LabelledImages, RawImages, Source


@dataclass(frozen=True, kw_only=True)
class ClassSubset(Source):
    """The images of some classes, relabelled 0, 1, … in the order given; erasers and splits see no others.

    Args:
        base: the whole dataset.
        classes: its labels that are kept, two or more, all different.

    Raises:
        ValueError: fewer than two classes, or repeated ones.
    """

    base: Source
    classes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.classes) < 2 or len(set(self.classes)) < len(self.classes):
            raise ValueError(f"classes={list(self.classes)}: need at least two classes, all different, e.g. [4,9]")

    @classmethod
    def of(cls, base: Source, classes: Sequence[int]) -> "ClassSubset":
        """`base` restricted to `classes`, all else as it is there."""
        shared = {field.name: getattr(base, field.name) for field in fields(Source)}
        return cls(**shared, base=base, classes=tuple(classes))

    def load(self) -> RawImages:
        return self.restrict(self.base.load())

    def content(self) -> str:
        return self.base.content()

    def identity(self) -> dict[str, Any]:
        return self.base.identity() | {"classes": list(self.classes)}

    def restrict(self, raw: RawImages) -> RawImages:
        """What is left of the whole dataset's images.

        Raises:
            ValueError: a class that the dataset does not have.
        """
        k = len(raw.class_names)
        if not 0 <= min(self.classes) <= max(self.classes) < k:
            raise ValueError(f"classes={list(self.classes)}: {self.name} has classes 0 to {k - 1}")
        labels = torch.full((k,), -1)
        labels[list(self.classes)] = torch.arange(len(self.classes))

        def part(images: LabelledImages) -> LabelledImages:
            new = labels[images.labels]
            return LabelledImages(images.images, new)[(new >= 0).nonzero().squeeze(1)]

        kept = labels[raw.train.labels] >= 0
        return replace(
            raw,
            train=part(raw.train),
            test=None if raw.test is None else part(raw.test),
            class_names=tuple(raw.class_names[c] for c in self.classes),
            parts=_counted(raw.parts, kept),
        )


def _counted(parts: Mapping[str, int], kept: Tensor) -> dict[str, int]:
    """How many of each part's consecutive images are kept; they stay consecutive."""
    if not parts:
        return {}
    return {name: int(own.sum()) for name, own in zip(parts, kept.split([*parts.values()]), strict=True)}
