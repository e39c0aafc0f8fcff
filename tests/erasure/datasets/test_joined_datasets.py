"""Mixtures of datasets in their real formats: what is brought to one size, counted, refused, remembered."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.datasets as published
from torch import Tensor

from conf.check import ConfigError
from conf.compose import composed
from conf.target_class import Target, check_target
from erasure.dataset import MissingDataError, Source
from erasure.datasets.arrays import Arrays
from erasure.datasets.class_subset import ClassSubset, positions
from erasure.datasets.digits import Digits
from erasure.datasets.image_folder import ImageFolder
from erasure.datasets.joined_datasets import JoinedDatasets
from erasure.datasets.mnist import Mnist
from erasure.datasets.svhn import Svhn
from erasure.image_cache import raw_images, raw_key, whole_images
from erasure.store.cache import Cache
from erasure.store.checked_files import fingerprint
from sample_info.__main__ import COMMAND as SAMPLE_INFO
from scripts.prepare_dataset import main as prepare
from tests.erasure.datasets.test_image_folder import folder, grey
from tests.erasure.made_up_datasets import OPTIONS, write_mnist, write_svhn
from tests.faulty_file_server import serving
from train.__main__ import COMMAND as TRAIN
from train.settings import TrainConfig


def mixture(parts: dict[str, Any], **changes: Any) -> JoinedDatasets:
    options = {"size": 32, "channels": 3, "images_per_part": None, "name": "both", **OPTIONS}
    return JoinedDatasets(parts=parts, **(options | changes))


@pytest.fixture
def mnist_and_svhn(tmp_path: Path, monkeypatch) -> tuple[Mnist, Svhn]:
    root = tmp_path / "data"
    return write_mnist(root / "a", monkeypatch)[0], write_svhn(root / "b", monkeypatch)[0]


def test_official_splits_stay_and_images_keep_their_order(mnist_and_svhn) -> None:
    mnist, svhn = mnist_and_svhn
    raw = mixture({"mnist": mnist, "svhn": svhn}).load()
    assert dict(raw.parts) == {"mnist": 60, "svhn": 50}
    assert raw.train.images.shape == (110, 3, 32, 32)
    assert raw.train.images.dtype == torch.uint8
    assert raw.test is not None
    assert len(raw.test) == 20 + 30
    assert raw.class_names == tuple("0123456789")
    assert torch.equal(raw.train.images[60:], svhn.load().train.images)  # of that size and colour already
    grey = raw.train.images[:60]
    assert torch.equal(grey[:, 0], grey[:, 1])
    assert torch.equal(grey[:, 0], grey[:, 2])
    labels = torch.cat([mnist.load().train.labels, svhn.load().train.labels])
    assert torch.equal(raw.train.labels, labels)


def test_without_official_splits_all_images_are_for_training_and_colours_become_grey(
    digits_source: Digits, tmp_path
) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=colours, y=np.arange(40) % 10)
    photographs = Arrays(name="photographs", path=str(tmp_path / "a.npz"), **OPTIONS)
    raw = mixture({"photographs": photographs, "digits": digits_source}, size=8, channels=1).load()
    assert raw.test is None
    assert dict(raw.parts) == {"photographs": 40, "digits": 1797}
    assert torch.equal(raw.train.images[40:].float().mul(16 / 255).round(), digits_source.load().train.images.float())
    assert (raw.max_value, int(raw.train.images[40:].max())) == (255, 255)
    luminance = (colours * np.array([0.2989, 0.587, 0.114])).sum(3)
    assert np.abs(raw.train.images[:40, 0].numpy() - luminance).max() <= 1


def test_shrinking_averages_instead_of_picking_pixels(tmp_path: Path) -> None:
    """A chequerboard of single pixels is grey from afar; without antialiasing it stays black or white."""
    board = (torch.arange(32)[:, None] + torch.arange(32)) % 2

    class Board(Digits):
        def load(self):
            raw = super().load()
            images = (16 * board).to(torch.uint8).expand(len(raw.train), 1, 32, 32)
            return dataclasses.replace(raw, train=dataclasses.replace(raw.train, images=images))

    small = mixture({"board": Board(name="board", **OPTIONS)}, size=8, channels=1).load().train.images
    assert float((small[0, 0, 1:-1, 1:-1].float() - 127.5).abs().max()) < 3
    picked = 255 * board[::4, ::4]
    assert set(picked.flatten().tolist()) <= {0, 255}


def test_a_sample_of_each_part_is_fixed_and_stratified(mnist_and_svhn) -> None:
    parts: dict[str, Any] = dict(zip(("mnist", "svhn"), mnist_and_svhn, strict=True))
    raw = mixture(parts, images_per_part=40, split_seed=5).load()
    assert dict(raw.parts) == {"mnist": 40, "svhn": 40}
    assert raw.train.labels[:40].bincount().tolist() == [4] * 10
    again = mixture(parts, images_per_part=40).load()
    assert torch.equal(raw.train.images, again.train.images)


def numbered(root: Path, name: str, classes: list[str]) -> ImageFolder:
    """Two images of each class, whose pixels are 20 times the number that its name ends in."""
    for word in classes:
        for i in range(2):
            grey(root / name / "train" / word / f"{i}.png", 20 * int(word.lstrip("abcdefghijklmnopqrstuvwxyz ")))
    return folder(root / name, channels=1)


def test_parts_that_do_not_fit_are_refused(digits_source: Digits, mnist_and_svhn, tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", x=np.eye(4), y=np.array([0, 1, 0, 1]))
    words = numbered(tmp_path, "words", [*map(str, range(10))])
    cases: dict[str, tuple[Source, Source]] = {
        r"b holds numbers of torch.float64: choose 8-bit": (
            digits_source,
            Arrays(name="v", path=str(tmp_path / "v.npz"), **OPTIONS),
        ),
        r"classes of b are 2, 3, but those of a are 0, 1, 2, 3, … \(10 in all\): give all parts the same names": (
            digits_source,
            numbered(tmp_path, "two", ["2", "3"]),
        ),
        r"classes of b are …, 10, 11, 2, 3, … \(12 in all\), but those of a are …, 2, 3, 4, 5, … \(10 in all\)": (
            words,
            numbered(tmp_path, "twelve", [*map(str, range(12))]),
        ),
        r"only a has an official test split": (mnist_and_svhn[0], digits_source),
    }
    for line, (one, other) in cases.items():
        with pytest.raises(ValueError, match=line) as error:
            mixture({"a": one, "b": other}, size=4).load()
        assert "\n" not in str(error.value)
    assert len(mixture({"a": words, "b": digits_source}, size=4).load().train) == 20 + 1797  # the negative control


def test_mixtures_of_files_of_ones_own_were_once_matched_by_number_and_have_another_identity(
    digits_source: Digits, tmp_path: Path
) -> None:
    pets = numbered(tmp_path, "words", [*map(str, range(10))])

    def by_number(parts: dict[str, Source]) -> str:
        return fingerprint([[name, part.stored_identity()] for name, part in parts.items()])

    published: dict[str, Source] = {"a": digits_source, "b": digits_source}
    assert mixture(published).content() == by_number(published)
    assert mixture({"a": digits_source, "b": pets}).content() != by_number({"a": digits_source, "b": pets})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parts": {}}, "at least one dataset"),
        ({"size": 0}, "size=0: must be at least 1"),
        ({"images_per_part": 0}, "images_per_part=0: must be at least 1"),
    ],
)
def test_bad_options_are_refused_before_anything_is_loaded(digits_source: Digits, changes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        mixture(**({"parts": {"digits": digits_source}} | changes))


DIGITS: dict[str, Any] = {
    "name": "digits",
    "_target_": "erasure.datasets.digits.Digits",
    **OPTIONS,
    "normalize": "none",
}


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"name": "a"}, r"dataset\.parts\.a\._target_ is missing: every dataset names itself"),
        ({"name": "a", "_target_": "erasure.Eraser"}, "must be a subclass of erasure.dataset.Source"),
        (DIGITS | {"test_fraction": "much"}, r"dataset\.parts\.a\.test_fraction=much: "),
        (DIGITS | {"rot": 1}, r"unknown key dataset\.parts\.a\.rot"),
        (5, r"dataset\.parts\[a\]=5: must be a valid dictionary"),
    ],
)
def test_sections_of_a_configuration_are_checked(part: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_target("dataset", section({"a": part}), "dataset")


def section(parts: dict[str, Any]) -> dict[str, Any]:
    options = {"size": 8, "channels": 1, "images_per_part": None, "parts": parts}
    return DIGITS | {"_target_": "erasure.datasets.joined_datasets.JoinedDatasets", **options}


def test_identity_is_what_the_parts_are_not_where_they_lie_or_how_they_are_split(mnist_and_svhn) -> None:
    mnist, svhn = mnist_and_svhn
    here = mixture({"mnist": mnist, "svhn": svhn})

    def same(*parts: Source, **changes: Any) -> bool:
        other = mixture(dict(zip(("mnist", "svhn"), parts, strict=True)), **changes)
        assert (other.identity() == here.identity()) == (raw_key(other) == raw_key(here))
        return other.identity() == here.identity()

    assert same(dataclasses.replace(mnist, root="/nowhere", split_seed=7, flip=True, normalize="zscore"), svhn)
    assert not same(svhn, mnist)
    assert not same(mnist, mnist)
    assert not same(mnist, svhn, size=16)
    assert not same(mnist, svhn, images_per_part=10)
    assert mixture({"svhn": svhn, "mnist": mnist}).identity() != here.identity()
    assert mixture({"mnist": mnist, "svhn": svhn}, split_seed=1).identity() != here.identity()


def test_the_cache_keeps_how_many_images_came_from_where(mnist_and_svhn, tmp_path: Path, monkeypatch) -> None:
    source, cache = mixture(dict(zip(("mnist", "svhn"), mnist_and_svhn, strict=True))), Cache(tmp_path / "cache")
    first = raw_images(source, cache)
    monkeypatch.setattr(JoinedDatasets, "load", None)
    again = raw_images(dataclasses.replace(source, validation_size=9), cache)
    assert list(again.parts.items()) == [("mnist", 60), ("svhn", 50)] == list(first.parts.items())
    assert torch.equal(again.train.images, first.train.images)


@pytest.mark.parametrize("classes", [(4, 9), (7, 0, 3)])
def test_some_classes_of_a_mixture_know_their_parts(mnist_and_svhn, classes, tmp_path: Path) -> None:
    whole = mixture(dict(zip(("mnist", "svhn"), mnist_and_svhn, strict=True)))
    subset, cache = ClassSubset.of(whole, classes), Cache(tmp_path / "cache")
    raw = raw_images(subset, cache)
    of_part: dict[str, Tensor] = {name: part.load().train.labels for name, part in whole.parts.items()}
    expected = {name: sum(int((labels == c).sum()) for c in classes) for name, labels in of_part.items()}
    assert dict(raw.parts) == expected
    assert sum(raw.parts.values()) == len(raw.train)
    places, _ = positions(subset, whole_images(subset, cache))["train"]  # in the whole mixture
    assert int((places < 60).sum()) + int((places >= 60).sum()) == len(places)
    assert int(places.max()) >= 60


def test_what_is_missing_is_fetched_and_prepared(mnist_and_svhn, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    source = mixture(dict(zip(("mnist", "svhn"), mnist_and_svhn, strict=True)))
    (tmp_path / "data" / "a" / "MNIST" / "raw").rename(tmp_path / "server")
    with pytest.raises(MissingDataError, match="dataset mnist is not in .*: fetch\\(\\) brings it"):
        source.load()
    with serving(tmp_path / "server") as address:
        monkeypatch.setattr(published.MNIST, "mirrors", [f"{address}/"])
        code = prepare(["dataset=mnist_svhn", "dataset.parts.mnist.root=data/a", "dataset.parts.svhn.root=data/b"])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert "dataset mnist is not in data/a: fetching" in shown.err
    assert "mnist_svhn: 160 images, 3×32×32, 10 classes, ready in" in shown.out
    assert len(source.load().train) == 110


def test_the_information_of_its_examples_is_scored(mnist_and_svhn, tmp_path: Path, command) -> None:
    roots = [
        f"dataset.parts.{part}.root={tmp_path / 'data' / place}" for part, place in (("mnist", "a"), ("svhn", "b"))
    ]
    options = ["logger.mode=disabled", "seeds=[0]", "eraser=leace", "model.width=16", "sample_info.classes=all"]
    outcome = command(SAMPLE_INFO, "dataset=mnist_svhn", "dataset.size=6", *roots, *options, "sample_info.examples=50")
    assert outcome.code == 0, outcome.err
    assert "MNIST + SVHN" in outcome.out
    assert len(list(Path("cache").glob("mnist_svhn-raw-*"))) == 1


def test_a_part_can_be_another_dataset_from_the_command_line(tmp_path: Path) -> None:
    """Hydra's own syntax for a choice at another place."""
    overrides = ["dataset=mnist_svhn", "dataset@dataset.parts.svhn=image_folder", "dataset.parts.svhn.root=/nowhere"]
    source = Target(composed(TRAIN.name, overrides, TrainConfig).dataset, JoinedDatasets).build()
    assert isinstance(source.parts["mnist"], Mnist)
    assert isinstance(source.parts["svhn"], ImageFolder)
    alone = composed(TRAIN.name, ["dataset=mnist_svhn", "~dataset.parts.svhn"], TrainConfig)
    assert list(Target(alone.dataset, JoinedDatasets).build().parts) == ["mnist"]
