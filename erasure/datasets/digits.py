"""The handwritten digits of scikit-learn: real scans that the package contains, without a download."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from erasure.dataset import LabelledImages, RawImages, Source
from erasure.optional_packages import needs
from erasure.store.checked_files import digest

_CONTENT = "de7a4538ded4d70bbedfad21b907dbfb"  # checksum of the images, the same in all releases so far


@dataclass(frozen=True, kw_only=True)
class Digits(Source):
    """1,797 grayscale 8×8 images of ten digits, grey levels 0..16 (Alpaydin & Kaynak 1998, the UCI test set)."""

    version = 1
    slow_to_load: ClassVar[bool] = False

    def load(self) -> RawImages:
        with needs("digits"):
            from sklearn.datasets import load_digits  # takes a second

        pixels, target = load_digits(return_X_y=True)
        images = torch.from_numpy(pixels).to(torch.uint8).view(-1, 1, 8, 8)
        labels = torch.from_numpy(target).long()
        if digest(images) != _CONTENT:
            raise ValueError("scikit-learn's digits have other pixels than expected: reinstall it")
        return RawImages(LabelledImages(images, labels), None, tuple("0123456789"), max_value=16)

    def content(self) -> str:
        return _CONTENT
