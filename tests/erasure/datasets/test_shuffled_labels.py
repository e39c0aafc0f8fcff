"""Another dataset's images with labels that say nothing of them."""

import dataclasses
from pathlib import Path

import torch
from torch import Tensor

from conf.compose import composed
from conf.target_class import Target
from erasure.dataset import LabelledImages, Source
from erasure.datasets.cifar10 import Cifar10
from erasure.datasets.digits import Digits
from erasure.datasets.image_folder import ImageFolder
from erasure.datasets.shuffled_labels import ShuffledLabels
from erasure.moments import ClassMoments
from tests.erasure.made_up_datasets import OPTIONS, write_cifar10
from train.__main__ import COMMAND as TRAIN
from train.settings import TrainConfig


def shuffled(images: Source, label_seed: int = 0) -> ShuffledLabels:
    return ShuffledLabels(images=images, label_seed=label_seed, name="shuffled", **OPTIONS)


def composed_source(*overrides: str) -> ShuffledLabels:
    config = composed(TRAIN.name, ["dataset=shuffled_labels", *overrides], TrainConfig)
    return Target(config.dataset, ShuffledLabels).build()


def class_spread(part: LabelledImages) -> Tensor:
    """Share of the variance that lies between class means."""
    moments = ClassMoments.fit(part.images.double(), part.labels)
    return moments.between.trace() / moments.total.trace()


def test_labels_say_nothing_of_the_images_but_their_numbers(digits_source: Digits) -> None:
    raw, relabelled = digits_source.load(), shuffled(digits_source).load()
    assert torch.equal(relabelled.train.images, raw.train.images)
    assert torch.equal(relabelled.train.labels.bincount(), raw.train.labels.bincount())
    by_chance = 9 / 1797  # k - 1 of n directions
    assert class_spread(raw.train) > 0.3
    assert by_chance / 2 < class_spread(relabelled.train) < 2 * by_chance


def test_each_split_is_shuffled_in_itself(tmp_path: Path, monkeypatch) -> None:
    cifar10, *_ = write_cifar10(tmp_path, monkeypatch)
    raw, relabelled = cifar10.load(), shuffled(cifar10).load()
    assert raw.test is not None
    assert relabelled.test is not None
    for before, after in ((raw.train, relabelled.train), (raw.test, relabelled.test)):
        assert torch.equal(after.images, before.images)
        assert not torch.equal(after.labels, before.labels)
        assert torch.equal(after.labels.sort().values, before.labels.sort().values)


def test_the_seed_and_the_images_are_what_it_is(tmp_path: Path, monkeypatch, digits_source: Digits) -> None:
    source = shuffled(digits_source)
    assert torch.equal(source.load().train.labels, shuffled(digits_source).load().train.labels)
    assert not torch.equal(source.load().train.labels, shuffled(digits_source, 1).load().train.labels)
    cifar10, *_ = write_cifar10(tmp_path / "a", monkeypatch)
    moved = dataclasses.replace(cifar10, root=str((tmp_path / "a").rename(tmp_path / "b")))
    assert isinstance(moved, Cifar10)
    known = [dataset.stored_identity() for dataset in (source, shuffled(digits_source, 1), shuffled(moved))]
    assert known[0] != known[1] != known[2] != known[0]
    renamed = dataclasses.replace(moved, name="elsewhere", split_seed=5)  # what is not this dataset's own
    assert shuffled(renamed).stored_identity() == known[2]


def test_any_dataset_can_lend_its_images_and_how_they_are_treated() -> None:
    folder = composed_source("dataset@dataset.images=image_folder", "dataset.images.root=/nowhere")
    assert isinstance(folder.images, ImageFolder)
    assert (folder.name, folder.flip, folder.normalize) == ("shuffled_image_folder", True, "none")
    digits = composed_source("dataset.normalize=zscore")
    assert (digits.name, digits.flip, digits.normalize) == ("shuffled_digits", False, "zscore")
