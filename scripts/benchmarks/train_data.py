"""Data for benchmarks of training: the digits, or images of CIFAR-10's size, on the device as a run has them."""

from collections.abc import Mapping

import torch

from erasure.datasets.digits import Digits
from erasure.pipeline import ErasedDataset
from erasure.source import LabelledImages, splits
from scripts.benchmarks.data import labelled_images
from train.data import DeviceImages, to_device

_CROP_PADDING = 0.125


def dataset(name: str, samples: int, device: torch.device) -> Mapping[str, DeviceImages]:
    """Splits "train" and "validation" of the digits, or of `samples` images of CIFAR-10's size ("cifar")."""
    if name == "digits":
        source = Digits(name=name, flip=False, validation_size=None, test_fraction=0.2, split_seed=0)
        raw = source.load()
        parts = {key: _scaled(part, raw.max_value) for key, part in splits(source, raw).items()}
    else:
        held_out = max(1, samples // 10)
        images, labels, _ = labelled_images(32, samples + held_out, 10)
        shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
        images, labels = images[shuffled], labels[shuffled]
        parts = {
            "train": _scaled(LabelledImages(images[held_out:], labels[held_out:]), 255),
            "validation": _scaled(LabelledImages(images[:held_out], labels[:held_out]), 255),
        }
    train = parts["train"].images
    erased = ErasedDataset(parts, tuple(map(str, range(10))), {}, train.mean((0, 2, 3)), train.std((0, 2, 3)))
    return to_device(erased, crop_padding=_CROP_PADDING, flip=name != "digits", device=device)


def _scaled(part: LabelledImages, max_value: float) -> LabelledImages:
    return LabelledImages(part.images.float() / max_value, part.labels)
