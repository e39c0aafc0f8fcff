"""A dataset restricted to some of its classes, and the positions of its images in the whole dataset."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from erasure.dataset import LabelledImages, RawImages, Source
from erasure.splits import splits

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ClassSubset(Source):
    """The images of some classes of a dataset, relabelled 0, 1, … in the order of `classes`.

    Args:
        base: the whole dataset.
        classes: two or more different labels; several labels in a tuple become one class.

    Raises:
        ValueError: fewer than two classes, an empty one, or repeated labels.
    """

    base: Source
    classes: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        selected = [label for merged in self.classes for label in merged]
        if len(self.classes) < 2 or not all(self.classes) or len(set(selected)) < len(selected):
            raise ValueError(
                f"classes={self._notation}: need at least two classes, all different, e.g. [4,9], or [[3,5],4] where 3 "
                "and 5 are one"
            )

    @classmethod
    def of(cls, base: Source, classes: Sequence[int | Sequence[int]]) -> "ClassSubset":
        """Return `base` restricted to `classes`."""
        shared = {field.name: getattr(base, field.name) for field in fields(Source)}
        merged = tuple((c,) if isinstance(c, int) else tuple(c) for c in classes)
        return cls(**shared, base=base, classes=merged)

    @property
    def merges(self) -> bool:
        """Whether a class merges several classes of the dataset."""
        return any(len(merged) > 1 for merged in self.classes)

    @property
    def _notation(self) -> list[int | list[int]]:
        """The classes, each as a list of labels, or as a label if it has only one."""
        return [merged[0] if len(merged) == 1 else list(merged) for merged in self.classes]

    def load(self) -> RawImages:
        return self.restrict(self.base.load())

    def content(self) -> str:
        return self.base.content()

    def example_names(self, index: Tensor) -> list[str]:
        return self.base.example_names(index)

    def identity(self) -> dict[str, object]:
        return self.base.identity() | {"classes": self._notation}

    def warn_of_other_numbers(self, class_names: Sequence[str]) -> None:
        """Log the names of the classes if they are numbers other than the labels, which count from 0."""
        called = {label: class_names[label] for labels in self.classes for label in labels if label < len(class_names)}
        numbers = all(name.removeprefix("-").isdecimal() for name in class_names)
        if numbers and any(int(name) != label for label, name in called.items()):
            log.warning("classes=%s of %s are called %s", self._notation, self.name, ", ".join(called.values()))

    def restrict(self, raw: RawImages) -> RawImages:
        """Select images of the chosen classes; raise ValueError for a class that the dataset does not have."""
        k = len(raw.class_names)
        selected = [label for merged in self.classes for label in merged]
        if not 0 <= min(selected) <= max(selected) < k:
            raise ValueError(f"classes={self._notation}: {self.name} has classes 0 to {k - 1}: choose some of these")
        labels = torch.full((k,), -1)
        for new, merged in enumerate(self.classes):
            labels[list(merged)] = new

        def part(images: LabelledImages) -> LabelledImages:
            new = labels[images.labels]
            return LabelledImages(images.images, new)[(new >= 0).nonzero().squeeze(1)]

        return replace(
            raw.map(part),
            class_names=tuple("+".join(raw.class_names[label] for label in merged) for merged in self.classes),
            parts=_counted(raw.parts, labels[raw.train.labels] >= 0),
        )


def _counted(parts: Mapping[str, int], selected: Tensor) -> dict[str, int]:
    """Return the number of selected images of each part; parts are consecutive."""
    if not parts:
        return {}
    return {name: int(mask.sum()) for name, mask in zip(parts, selected.split([*parts.values()]), strict=True)}


def positions(source: Source, raw: RawImages) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the positions of images in `raw` (the `whole_images` of a source) and their labels, [n] each, by split."""
    numbers = raw.map(lambda part: LabelledImages(torch.arange(len(part)), part.labels))  # each image is its position
    if isinstance(source, ClassSubset):
        numbers = source.restrict(numbers)
    return {name: (part.images, part.labels) for name, part in splits(source, numbers).items()}
