"""A dataset that lives on the device, and batches gathered from it with a crop and a flip per example."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from erasure.dataset import LabelledImages
from erasure.pipeline import ErasedDataset


class DeviceImages:
    """One split on the device: standardised float32 images, stored once, with padding for crops.

    Args:
        part: images [N, C, H, W] and labels [N].
        mean: per channel, [C].
        std: per channel, [C].
        padding: width in pixels of the zeros (the channel mean) around each image, which crops may include.
        flip: whether augmented examples may be mirrored left to right.
        device: the device of the images and labels.
    """

    def __init__(
        self, part: LabelledImages, mean: Tensor, std: Tensor, *, padding: int, flip: bool, device: torch.device
    ) -> None:
        h, w = part.images.shape[-2:]
        images = part.images.to(device=device, dtype=torch.float32)
        mean, std = (statistic.to(images)[:, None, None] for statistic in (mean, std))
        standardised = (images - mean).div_(std)
        padded = F.pad(standardised, (padding,) * 4) if padding else standardised
        self.images = padded[..., padding : padding + h, padding : padding + w]
        self.labels = part.labels.to(device)
        self.padding, self.flip = padding, flip
        self._crops = padded.unfold(2, h, 1).unfold(3, w, 1)  # [N, C, dy, dx, H, W], no copy

    @property
    def image_shape(self) -> tuple[int, int, int]:
        _, c, h, w = self.images.shape
        return c, h, w

    @property
    def num_views(self) -> int:
        """The number of crop and flip combinations of an example."""
        return (2 * self.padding + 1) ** 2 * (1 + self.flip)

    def __len__(self) -> int:
        return len(self.labels)

    def plain(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return examples [...] without augmentation: images [..., C, H, W] and labels [...]."""
        return self.images[index], self.labels[index]

    def augmented(self, index: Tensor, view: Tensor) -> tuple[Tensor, Tensor]:
        """Return examples [...], each augmented by the crop and flip number `view` [...] in 0..num_views-1."""
        if self.num_views == 1:
            return self.plain(index)
        offsets = 2 * self.padding + 1
        dy, dx = view // offsets % offsets, view % offsets
        images = self._crops[index, :, dy, dx]
        if self.flip:
            mirrored = (view >= offsets**2)[..., None, None, None]
            images = torch.where(mirrored, images.flip(-1), images)
        return images, self.labels[index]


def to_device(
    dataset: ErasedDataset, *, crop_padding: float, flip: bool, device: torch.device
) -> Mapping[str, DeviceImages]:
    """Copy every split to `device`; pad only the training split, by the fraction `crop_padding` of the side."""
    statistics = dataset.channel_mean, dataset.channel_std
    return standardised(dataset.splits, *statistics, crop_padding=crop_padding, flip=flip, device=device)


def standardised(
    splits: Mapping[str, LabelledImages],
    mean: Tensor,
    std: Tensor,
    *,
    crop_padding: float,
    flip: bool,
    device: torch.device,
) -> dict[str, DeviceImages]:
    """Copy splits to `device`, standardised by mean and standard deviation; only "train" is padded and mirrored."""
    padding = round(crop_padding * max(splits["train"].images.shape[-2:]))
    return {
        name: DeviceImages(
            part,
            mean,
            std,
            padding=padding if name == "train" else 0,
            flip=flip and name == "train",
            device=device,
        )
        for name, part in splits.items()
    }


def as_trained_on(dataset: ErasedDataset, part: LabelledImages, device: torch.device) -> DeviceImages:
    """Copy other images to the device, standardised like the dataset's splits, without augmentation."""
    return DeviceImages(part, dataset.channel_mean, dataset.channel_std, padding=0, flip=False, device=device)
