"""scikit-learn's handwritten digits: real scans, embedded in the package, nothing to download."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from erasure.source import LabelledImages, RawImages, Source
from erasure.store.storage import digest

_CONTENT = "de7a4538ded4d70bbedfad21b907dbfb"  # checksum of the images, as every release so far embeds them


@dataclass(frozen=True, kw_only=True)
class Digits(Source):
    """1,797 grayscale 8×8 images of ten digits, grey levels 0..16 (Alpaydin & Kaynak 1998, the UCI test set)."""

    version = 1
    slow_to_load: ClassVar[bool] = False

    def load(self) -> RawImages:
        package = find_spec("sklearn")  # whose import takes longer than to read its file
        assert package is not None
        assert package.origin is not None
        path = Path(package.origin).with_name("datasets") / "data" / "digits.csv.gz"
        rows = torch.from_numpy(np.loadtxt(path, delimiter=",", dtype=np.uint8))
        images, labels = rows[:, :-1].contiguous().view(-1, 1, 8, 8), rows[:, -1].long()
        if digest(images) != _CONTENT:
            raise ValueError("scikit-learn's digits have other pixels than expected: reinstall it")
        return RawImages(LabelledImages(images, labels), None, tuple("0123456789"), max_value=16)

    def content(self) -> str:
        return _CONTENT
