"""Street View House Numbers: 99,289 colour photographs of digits, 32×32, cut out of house numbers."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from erasure.dataset import LabelledImages, Published, RawImages
from erasure.optional_packages import needs

with needs("torchvision"):
    from torchvision.datasets import SVHN

_SPLITS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class Svhn(Published):
    """73,257 training and 26,032 test images in <root>/{train,test}_32x32.mat (Netzer et al. 2011).

    Classes are unequal: there are three times as many ones as nines. The digit zero has label 10 in the files and
    label 0 here.
    """

    version = 1

    def files(self) -> Mapping[str, str]:
        return {SVHN.split_list[split][1]: SVHN.split_list[split][2] for split in _SPLITS}

    def read(self) -> RawImages:
        train, test = (_images(SVHN(self.folder, split=split)) for split in _SPLITS)
        return RawImages(train, test, tuple("0123456789"))

    def download(self) -> None:
        for split in _SPLITS:
            SVHN(self.folder, split=split, download=True)


def _images(part: SVHN) -> LabelledImages:
    # torchvision: [n, C, H, W] as a view of the file's [H, W, C, n], and 10 already turned into 0
    return LabelledImages(torch.from_numpy(part.data).contiguous(), torch.from_numpy(part.labels))
