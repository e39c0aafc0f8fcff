"""A dataset with shuffled labels, from which a network can learn only information that an eraser has added."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from erasure.dataset import LabelledImages, RawImages, Source
from erasure.store.checked_files import fingerprint


@dataclass(frozen=True, kw_only=True)
class ShuffledLabels(Source):
    """The images of another dataset, with its labels in random order in each split (Zhang et al. 2017).

    An eraser that uses labels maps each class separately, also in held-out data. With classes that differ only by
    chance, held-out accuracy shows whether networks detect these maps. Splits, flips and normalisation are the settings
    of this dataset; those of `images` have no effect.

    Args:
        images: the dataset.
        label_seed: seed of the order.
    """

    images: Source
    label_seed: int

    version = 1
    locations: ClassVar[tuple[str, ...]] = ("images",)  # `content` identifies the images by content, not by path

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
