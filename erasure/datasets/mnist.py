"""MNIST: 70,000 grayscale images of handwritten digits, 28×28."""

import gzip
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from erasure.dataset import LabelledImages, Published, RawImages
from erasure.optional_packages import needs

with needs("torchvision"):
    from torchvision.datasets import MNIST
    from torchvision.datasets.utils import download_url

_FOLDER = "MNIST/raw"  # torchvision's


@dataclass(frozen=True, kw_only=True)
class Mnist(Published):
    """60,000 training and 10,000 test images in <root>/MNIST/raw/*.gz (LeCun et al. 1998).

    Only the compressed files have published checksums, so these are read. torchvision would read unpacked copies
    without a check.
    """

    version = 1

    def files(self) -> Mapping[str, str]:
        return {f"{_FOLDER}/{name}": md5 for name, md5 in MNIST.resources}

    def read(self) -> RawImages:
        train, test = (self._images(prefix) for prefix in ("train", "t10k"))
        return RawImages(train, test, tuple("0123456789"))

    def download(self) -> None:
        for name, md5 in MNIST.resources:
            failures: list[Exception] = []
            for mirror in MNIST.mirrors:
                try:
                    download_url(mirror + name, self.folder / _FOLDER, name, md5)
                    break
                except (OSError, RuntimeError) as error:
                    failures.append(error)
            else:
                raise failures[0]

    def _images(self, prefix: str) -> LabelledImages:
        images = _read_idx(gzip.decompress((self.folder / _FOLDER / f"{prefix}-images-idx3-ubyte.gz").read_bytes()))
        labels = _read_idx(gzip.decompress((self.folder / _FOLDER / f"{prefix}-labels-idx1-ubyte.gz").read_bytes()))
        return LabelledImages(images.unsqueeze(1), labels.long())


def _read_idx(content: bytes) -> Tensor:
    """Read a uint8 tensor in idx format: 0, 0, 8 (bytes), number of axes, each axis as big-endian 32 bits, values."""
    shape = np.frombuffer(content, ">i4", count=content[3], offset=4)
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape).copy())
