"""CIFAR-10: 60,000 colour photographs of ten kinds of things, 32×32."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from erasure.dataset import LabelledImages, Published, RawImages
from erasure.optional_packages import needs

with needs("torchvision"):
    from torchvision.datasets import CIFAR10


@dataclass(frozen=True, kw_only=True)
class Cifar10(Published):
    """50,000 training and 10,000 test images in <root>/cifar-10-batches-py (Krizhevsky 2009).

    The files are pickles, which can run any code. They are opened only after their checksums have been verified.
    """

    version = 1

    def files(self) -> Mapping[str, str]:
        listed = [*CIFAR10.train_list, *CIFAR10.test_list, (CIFAR10.meta["filename"], CIFAR10.meta["md5"])]
        return {f"{CIFAR10.base_folder}/{name}": md5 for name, md5 in listed}

    def read(self) -> RawImages:
        train, test = (CIFAR10(self.folder, train=part) for part in (True, False))
        return RawImages(_images(train), _images(test), tuple(train.classes))

    def download(self) -> None:
        CIFAR10(self.folder, download=True)


def _images(part: CIFAR10) -> LabelledImages:
    images = torch.from_numpy(part.data).permute(0, 3, 1, 2).contiguous()  # torchvision: [n, H, W, C]
    return LabelledImages(images, torch.tensor(part.targets))
