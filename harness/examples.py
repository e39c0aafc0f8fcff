"""What an eraser leaves of an image, at a glance: one per class, for a run's page on W&B."""

import torch
from torch import Tensor

from erasure.pipeline import ErasedDataset

_LEAST_SIDE = 64  # pixels; smaller images are enlarged


def example_row(dataset: ErasedDataset, split: str = "test") -> Tensor:
    """The first image of each class of a split, side by side, uint8 [H, W, C]; out of range is clipped."""
    images, labels = dataset.splits[split].images, dataset.splits[split].labels
    firsts = [int((labels == label).nonzero()[0]) for label in labels.unique()]
    pixels = dataset.pixels(images[firsts].float()).clamp(0, 1).cpu()
    scale = max(1, -(-_LEAST_SIDE // pixels.shape[-1]))
    pixels = pixels.repeat_interleave(scale, dim=2).repeat_interleave(scale, dim=3)
    return (255 * torch.cat([*pixels], dim=2)).round().to(torch.uint8).permute(1, 2, 0)
