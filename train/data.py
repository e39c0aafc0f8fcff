"""A dataset that lives on the device, and batches gathered from it with a crop and a flip per example."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from erasure.pipeline import ErasedDataset
from erasure.source import LabelledImages


class DeviceImages:
    """One split on the device, standardised, float32.

    Args:
        part: images [N, C, H, W] and labels [N].
        mean: per channel, [C].
        std: per channel, [C].
        padding: pixels of zeros (the channel mean) around each image that crops may reach into.
        flip: whether augmented examples may be mirrored left to right.
        device: where everything is kept.
    """

    def __init__(
        self,
        part: LabelledImages,
        mean: Tensor,
        std: Tensor,
        *,
        padding: int,
        flip: bool,
        device: torch.device,
    ) -> None:
        images = part.images.to(device=device, dtype=torch.float32)
        mean, std = (statistic.to(images)[:, None, None] for statistic in (mean, std))
        self.images = (images - mean) / std
        self.labels = part.labels.to(device)
        self.padding, self.flip = padding, flip
        self._padded = F.pad(self.images, (padding,) * 4).flatten(1) if padding else self.images.flatten(1)
        self._views = _view_table(self.image_shape, padding, flip).to(device)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        _, c, h, w = self.images.shape
        return c, h, w

    @property
    def num_views(self) -> int:
        """Number of crop and flip combinations an example can be seen in."""
        return len(self._views)

    def __len__(self) -> int:
        return len(self.labels)

    def plain(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Examples [...] as they are: images [..., C, H, W] and labels [...]."""
        return self.images[index], self.labels[index]

    def augmented(self, index: Tensor, view: Tensor) -> tuple[Tensor, Tensor]:
        """Examples [...], each in its own crop and flip `view` [...] in 0..num_views-1."""
        if self.num_views == 1:
            return self.plain(index)
        pixels = self._padded[index].gather(-1, self._views[view])
        return pixels.unflatten(-1, self.image_shape), self.labels[index]


def _view_table(shape: tuple[int, int, int], padding: int, flip: bool) -> Tensor:
    """For each crop offset and flip, where each pixel [C·H·W] comes from in the padded image, flattened."""
    c, h, w = shape
    wide = w + 2 * padding
    channel = torch.arange(c)[:, None, None] * ((h + 2 * padding) * wide)
    rows, columns = torch.arange(h)[None, :, None], torch.arange(w)[None, None, :]
    views = [
        channel + (rows + dy) * wide + (cols + dx)
        for cols in ((columns, columns.flip(-1)) if flip else (columns,))
        for dy in range(2 * padding + 1)
        for dx in range(2 * padding + 1)
    ]
    return torch.stack([view.flatten() for view in views])


def to_device(
    dataset: ErasedDataset, *, crop_padding: float, flip: bool, device: torch.device
) -> Mapping[str, DeviceImages]:
    """Every split on `device`; only the training split is padded for crops, by `crop_padding` of the side."""
    side = max(dataset.splits["train"].images.shape[-2:])
    return {
        name: DeviceImages(
            part,
            dataset.channel_mean,
            dataset.channel_std,
            padding=round(crop_padding * side) if name == "train" else 0,
            flip=flip and name == "train",
            device=device,
        )
        for name, part in dataset.splits.items()
    }
