"""A dataset with shuffled labels: a network can only learn what the eraser has written into it."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from erasure.dataset import LabelledImages, RawImages, Source
from erasure.store.checked_files import fingerprint


@dataclass(frozen=True, kw_only=True)
class ShuffledLabels(Source):
    """The images of another dataset with its labels in random order (Zhang et al. 2017), in each split for itself.

    An eraser that sees labels treats each class by itself, held-out images too: classes that differ by chance alone
    show whether networks read that. Splits, flips and normalisation are this dataset's, whatever the images' would be.

    Args:
        images: the dataset.
        label_seed: of the order.
    """

    images: Source
    label_seed: int

    version = 1
    locations: ClassVar[tuple[str, ...]] = ("images",)  # part of `content` by content, not by path

    def content(self) -> str:
        """Return a digest of the images' content."""
        return fingerprint(self.images.stored_identity())

    def fetch(self) -> None:
        self.images.fetch()

    def example_names(self, index: Tensor) -> list[str]:
        return self.images.example_names(index)

    def load(self) -> RawImages:
        """Return the images unchanged, with as many of each label as before."""
        generator = torch.Generator().manual_seed(self.label_seed)

        def shuffled(part: LabelledImages) -> LabelledImages:
            return replace(part, labels=part.labels[torch.randperm(len(part), generator=generator)])

        return self.images.load().map(shuffled)
