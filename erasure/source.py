"""The base class of datasets: labelled images with an identity that does not depend on where they lie."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from erasure.code_identity import code_identity


class MissingDataError(ValueError):
    """A dataset that is missing or damaged, and that `Source.fetch` can download.

    Attributes:
        problem: description of what is missing or damaged.
        source: the dataset.
    """

    def __init__(self, problem: str, source: "Source") -> None:
        super().__init__(problem, source)
        self.problem = problem
        self.source = source

    def __str__(self) -> str:
        return f"{self.problem}: fetch() brings it"


@dataclass(frozen=True)
class LabelledImages:
    """One split: `images` [n, C, H, W], `labels` [n] int64. Vectors are images [n, d, 1, 1]: d channels of a point."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Tensor) -> "LabelledImages":
        return LabelledImages(self.images[index], self.labels[index])


@dataclass(frozen=True)
class RawImages:
    """A dataset as its source stores it.

    Attributes:
        train: training images, uint8 in 0..max_value or floating in 0..1; vectors floating, of any values.
        test: the official held-out split, or None where there is none.
        class_names: one per label.
        max_value: the brightest value a uint8 pixel can take (255; 16 for the digits).
        bounded: values outside 0..1 are no possible image; not so for vectors.
        parts: of a mixture, how many consecutive training images came from each part, by its name, in order.
    """

    train: LabelledImages
    test: LabelledImages | None
    class_names: tuple[str, ...]
    max_value: int = 255
    bounded: bool = True
    parts: Mapping[str, int] = field(default_factory=dict)

    def map(self, function: Callable[[LabelledImages], LabelledImages]) -> "RawImages":
        """Apply a function to the training images, and to the test images where there are any."""
        return replace(self, train=function(self.train), test=None if self.test is None else function(self.test))


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """A named dataset.

    Args:
        name: what tables and figures call it.
        flip: horizontal flips are a fair augmentation (they are not for digits).
        validation_size: images taken out of the training split for early stopping; None for 1,024 (the
            paper's) or a tenth, whichever is less.
        test_fraction: share of the images held out for testing where there is no official test split.
        split_seed: seed of those two splits. They belong to the dataset: no run's seed moves them.
        normalize: "zscore" gives every coordinate mean 0 and variance 1 on the training split before anything
            is erased; "none" leaves pixels as they are.
    """

    name: str
    flip: bool
    validation_size: int | None
    test_fraction: float
    split_seed: int
    normalize: Literal["none", "zscore"] = "none"

    version: ClassVar[int]  # of the loaded data; a subclass without one is identified by its source
    slow_to_load: ClassVar[bool] = True  # worth keeping as one tensor file after the first time
    locations: ClassVar[tuple[str, ...]] = ()  # fields for paths, which are not part of the identity

    @abstractmethod
    def load(self) -> RawImages:
        """Read the images.

        Raises:
            MissingDataError: the data is missing or damaged, and can be fetched.
            ValueError: the data is missing or invalid.
        """

    @abstractmethod
    def content(self) -> str:
        """Return an identity of the stored images, the same on any machine, without decoding them."""

    def row_names(self, index: Tensor) -> list[str] | None:  # noqa: ARG002 of no images
        """Return names of the training examples at these positions [n], which figures show; None for images."""
        return None

    def identity(self) -> dict[str, object]:
        """Everything about this dataset that determines a run's numbers, and nothing about this machine."""
        described = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in self.locations}
        return described | {"code": code_identity(type(self)), "content": self.content()}

    def stored_identity(self) -> dict[str, object]:
        """Return the inputs of `load`: splits, normalisation and names come later."""
        shared = {f.name for f in fields(Source)}
        return {key: value for key, value in self.identity().items() if key not in shared}

    def fetch(self) -> None:  # noqa: B027 nothing to do is the common case
        """Download published data. Embedded data and the user's files need no download.

        Raises FetchError without network or space, or if the download differs from the published data.
        """


def splits(source: Source, raw: RawImages) -> dict[str, LabelledImages]:
    """Training, validation and test split, the same for every run of this dataset.

    Raises ValueError for sizes that do not fit, or labels that do not match the class names.
    """
    k = len(raw.class_names)
    for part in (raw.train, raw.test):
        if part is not None and len(part) and not 0 <= int(part.labels.min()) <= int(part.labels.max()) < k:
            raise ValueError(
                f"dataset {source.name} has labels from {int(part.labels.min())} to {int(part.labels.max())}, "
                f"but {k} classes: labels must run from 0 to {k - 1}"
            )
    train, test = raw.train, raw.test
    if test is None:
        if not 0 < source.test_fraction < 1:
            raise ValueError(
                f"test_fraction={source.test_fraction}: {source.name} has no official test split, "
                "so a fraction between 0 and 1 of it must be held out"
            )
        rest, held_out = stratified_split(train.labels, round(source.test_fraction * len(train)), source.split_seed)
        train, test = train[rest], train[held_out]
    size = source.validation_size
    if size is None:
        size = min(1024, len(train) // 10)
    if not 0 < size < len(train):
        raise ValueError(
            f"validation_size={size}: must be between 1 and {len(train) - 1}, as {source.name} has {len(train)} "
            "training images"
        )
    rest, held_out = stratified_split(train.labels, size, source.split_seed + 1)
    return {"train": train[rest], "validation": train[held_out], "test": test}


def stratified_split(labels: Tensor, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return ascending positions (rest, held out) with `size` examples held out, every class in proportion."""
    generator = torch.Generator().manual_seed(seed)
    classes, counts = labels.unique(return_counts=True)
    exact = counts * (size / len(labels))
    quota = exact.floor().long()
    remainders = (exact - quota).argsort(descending=True, stable=True)
    quota[remainders[: size - int(quota.sum())]] += 1  # largest remainders first
    held_out = []
    for label, take in zip(classes, quota.tolist(), strict=True):
        members = (labels == label).nonzero().squeeze(1)
        held_out.append(members[torch.randperm(len(members), generator=generator)[:take]])
    mask = torch.zeros(len(labels), dtype=torch.bool)
    mask[torch.cat(held_out)] = True
    return (~mask).nonzero().squeeze(1), mask.nonzero().squeeze(1)
