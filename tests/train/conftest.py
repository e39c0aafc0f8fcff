"""The digits as the training loop reads them."""

import dataclasses
from collections.abc import Mapping

import pytest
import torch

from erasure.pipeline import ErasedDataset
from erasure.splits import splits
from train.device_images import DeviceImages, to_device


@pytest.fixture(scope="module")
def data(digits_source) -> Mapping[str, DeviceImages]:
    raw = digits_source.load()
    parts = {
        name: dataclasses.replace(part, images=part.images / 16) for name, part in splits(digits_source, raw).items()
    }
    dataset = ErasedDataset(parts, raw.class_names, {}, torch.tensor([0.3]), torch.tensor([0.4]))
    return to_device(dataset, crop_padding=0.125, flip=False, device=torch.device("cpu"))
