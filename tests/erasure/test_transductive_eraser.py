"""Methods without a map: the splits of a dataset move together, on the scale that its options are stated for."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Self

import pytest
import torch
from torch import Tensor

from erasure import ClassMoments, IdentityEraser
from erasure.certificate import BrokenGuaranteeError
from erasure.datasets.digits import Digits
from erasure.pipeline import ErasedDataset, erased_dataset
from erasure.store.cache import Cache
from erasure.transductive_eraser import TransductiveEraser
from erasure.zscore import Preprocessing


@dataclass(repr=False)
class Grey(TransductiveEraser):
    """Every example becomes the same: the mean of all examples of the call, at most as bright as `brightest`."""

    mean: Tensor
    num_classes: int
    brightest: Tensor
    bound: float = 1.0
    version: ClassVar[int] = 1

    @classmethod
    def from_moments(cls, moments: ClassMoments, *, brightest: float = 0.5, bound: float = 1.0) -> Self:
        return cls(moments.mean, moments.num_classes, torch.full_like(moments.mean, brightest), bound)

    def erase_together(self, x: Tensor, z: Tensor) -> Tensor:
        return torch.minimum(x.mean(0), self.brightest.to(x)).expand_as(x).clone()

    def on_scale(self, preprocessing: Preprocessing) -> Self:
        scaling = preprocessing.scaling
        if scaling is None:
            return self
        return dataclasses.replace(self, brightest=self.brightest * scaling.scale.flatten() + scaling.shift.flatten())

    def require_orders(self, erased: Tensor, z: Tensor) -> None:
        if not float(erased.max()) <= self.bound:
            raise BrokenGuaranteeError(f"a value is above {self.bound}")


def erase(source: Digits, eraser, cache: Cache, **options) -> ErasedDataset:
    return erased_dataset(source, eraser, options, dtype=torch.float32, cache=cache)


@pytest.mark.parametrize("normalize", ["none", "zscore"])
def test_all_splits_move_together_on_the_scale_of_the_dataset(
    digits_source: Digits, tmp_path: Path, normalize: Literal["none", "zscore"]
) -> None:
    source = dataclasses.replace(digits_source, normalize=normalize)
    control = erase(source, IdentityEraser, Cache(tmp_path))
    whole = control.pixels(torch.cat([part.images for part in control.splits.values()]))
    expected = whole.mean(0).clamp(max=0.5)
    assert bool((expected == 0.5).any())
    dataset = erase(source, Grey, Cache(tmp_path), bound=1e9)
    for name, part in dataset.splits.items():
        assert torch.equal(part.labels, control.splits[name].labels)
        torch.testing.assert_close(dataset.pixels(part.images), expected.expand_as(part.images), rtol=0, atol=1e-5)


def test_a_promise_that_is_not_kept_stores_nothing(digits_source: Digits, tmp_path: Path) -> None:
    with pytest.raises(BrokenGuaranteeError, match=r"a value is above 0\.1"):
        erase(digits_source, Grey, Cache(tmp_path), bound=0.1)
    assert list(tmp_path.iterdir()) == []


def test_there_is_no_map_to_save_or_to_apply(digits, tmp_path: Path) -> None:
    eraser = Grey.fit(*digits)
    with pytest.raises(ValueError, match="Grey has no map to store: save the erased examples"):
        eraser.save(tmp_path / "no")
    with pytest.raises(NotImplementedError, match="transductive: call the eraser on all examples at once"):
        eraser.transform(digits[0].flatten(1).double(), digits[1])
    with pytest.raises(ValueError, match="pass the labels z"):
        eraser(digits[0])
