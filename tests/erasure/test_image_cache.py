"""Images are loaded once, and mistakes in them are said."""

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from erasure.dataset import LabelledImages, RawImages
from erasure.datasets.digits import Digits
from erasure.image_cache import raw_images
from erasure.store.cache import Cache
from tests.erasure.made_up_datasets import OPTIONS, write_cifar10


def test_images_are_converted_once_whatever_is_done_with_them(tmp_path: Path, monkeypatch) -> None:
    source, *_ = write_cifar10(tmp_path / "data", monkeypatch)
    cache = Cache(tmp_path / "cache")
    first = raw_images(source, cache)
    monkeypatch.setattr(type(source), "load", None)
    for changes in ({"normalize": "zscore"}, {"validation_size": 30}, {"flip": True}):
        again = raw_images(dataclasses.replace(source, **changes), cache)
        assert torch.equal(again.train.images, first.train.images)
    assert len(list((tmp_path / "cache").glob("*.safetensors"))) == 1


def described(images: Tensor, labels: list[int], names: tuple[str, ...], test: Tensor | None = None) -> Digits:
    class Described(Digits):
        def load(self) -> RawImages:
            held_out = None if test is None else LabelledImages(test, torch.zeros(len(test), dtype=torch.int64))
            return RawImages(
                LabelledImages(images, torch.tensor(labels)), held_out, names, bounded=images.shape[-1] > 1
            )

    return Described(name="mine", **OPTIONS)


IMAGES = torch.arange(6 * 4, dtype=torch.uint8).view(6, 1, 2, 2)


def test_repeated_images_and_empty_classes_are_said(tmp_path: Path, caplog) -> None:
    def said(*args: Any) -> list[str]:
        caplog.clear()
        raw_images(described(*args), Cache(tmp_path))
        return caplog.messages

    labels = [0, 1, 0, 1, 0, 1]
    assert said(IMAGES, labels, ("a", "b"), IMAGES[:0]) == []
    test = torch.cat([IMAGES[2:4], 100 + IMAGES[:1]])
    assert said(IMAGES, labels, ("a", "b"), test) == ["mine: 2 of 3 test images are also training images"]
    repeated = IMAGES[[0, 1, 2, 3, 3, 3]]
    line = "mine: 2 of 6 images repeat an earlier one, and the splits may share them"
    assert said(repeated, labels, ("a", "b")) == [line]
    assert said(repeated, labels, ("a", "b"), test[2:]) == []
    assert said(repeated.view(6, 4, 1, 1).float(), labels, ("a", "b")) == []  # vectors may well be equal
    numbers = tuple(map(str, range(8)))
    line = "mine: 6 of 8 classes have no training example: '0', '2', '3', '4', '5', …"
    assert said(IMAGES, [1, 6, 1, 6, 1, 6], numbers) == [line]
