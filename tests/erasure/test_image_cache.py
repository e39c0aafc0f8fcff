"""Images are loaded once, and cached images of earlier versions can still be read."""

import dataclasses
from pathlib import Path

import torch

from erasure.datasets.mnist import Mnist
from erasure.image_cache import raw_images, raw_key
from erasure.store.cache import Cache
from erasure.store.checked_files import load_tensors, save_tensors
from tests.erasure.datasets.test_image_folder import folder, write_images
from tests.erasure.made_up_datasets import write_cifar10, write_mnist


def test_images_are_converted_once_whatever_is_done_with_them(tmp_path: Path, monkeypatch) -> None:
    source, *_ = write_cifar10(tmp_path / "data", monkeypatch)
    cache = Cache(tmp_path / "cache")
    first = raw_images(source, cache)
    monkeypatch.setattr(type(source), "load", None)
    for changes in ({"normalize": "zscore"}, {"validation_size": 30}, {"flip": True}):
        again = raw_images(dataclasses.replace(source, **changes), cache)
        assert torch.equal(again.train.images, first.train.images)
    assert len(list((tmp_path / "cache").glob("*.safetensors"))) == 1


def test_images_cached_before_there_were_vectors_are_still_bounded(tmp_path: Path, monkeypatch) -> None:
    write_images(tmp_path / "data", "train", 12)
    source, cache = folder(tmp_path / "data"), Cache(tmp_path / "cache")
    raw_images(source, cache)
    path = cache.path(raw_key(source))
    tensors, metadata = load_tensors(path)
    assert metadata.pop("bounded") is True
    save_tensors(path, tensors, metadata)
    monkeypatch.setattr(type(source), "load", None)
    assert raw_images(source, cache).bounded


def test_entries_from_before_there_were_mixtures_still_load(tmp_path: Path, monkeypatch) -> None:
    mnist, cache = write_mnist(tmp_path / "data", monkeypatch)[0], Cache(tmp_path / "cache")
    raw_images(mnist, cache)
    path = cache.path(raw_key(mnist))
    tensors, metadata = load_tensors(path)
    assert metadata.pop("parts") == {}
    save_tensors(path, tensors, metadata)
    monkeypatch.setattr(Mnist, "load", None)
    assert raw_images(mnist, cache).parts == {}
