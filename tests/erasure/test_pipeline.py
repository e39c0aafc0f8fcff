"""The pipeline: fitted on train, applied to every split, certified, cached under all that determines it."""

import dataclasses
from pathlib import Path

import pytest
import torch

from erasure import IdentityEraser, LeaceEraser, OracleLeaceEraser, pipeline
from erasure.cache import Cache
from erasure.certificate import BrokenGuaranteeError
from erasure.datasets.digits import Digits
from erasure.pipeline import erased_dataset
from erasure.source import LabelledImages, RawImages
from tests.conftest import gaps
from tests.erasure.test_image_folder import folder, write_images


def erase(source, eraser, cache: Cache, dtype: torch.dtype = torch.float32, **options):
    return erased_dataset(source, eraser, options, dtype=dtype, cache=cache)


def test_the_eraser_is_fitted_on_the_training_split_and_applied_to_all(digits_source: Digits, tmp_path: Path) -> None:
    control = erase(digits_source, IdentityEraser, Cache(tmp_path))
    erased = erase(digits_source, LeaceEraser, Cache(tmp_path))
    eraser = LeaceEraser.fit(control.splits["train"].images, control.splits["train"].labels)
    for name in ("train", "validation", "test"):
        before, after = control.splits[name], erased.splits[name]
        torch.testing.assert_close(after.images, eraser(before.images), rtol=0, atol=1e-6)
        assert torch.equal(before.labels, after.labels)
    train = erased.splits["train"]
    assert gaps(train.images, train.labels, control.splits["train"].images)[0] < 1e-6
    assert erased.certificate["train"].mean_gap < 1e-6 < erased.certificate["test"].mean_gap
    assert control.certificate["train"].edit_size == 0
    torch.testing.assert_close(erased.channel_mean, control.channel_mean)
    assert float(control.splits["train"].images.max()) == 1.0


def test_a_second_call_reads_the_same_dataset_back(digits_source: Digits, tmp_path: Path, monkeypatch) -> None:
    first = erase(digits_source, LeaceEraser, Cache(tmp_path))
    monkeypatch.setattr(LeaceEraser, "from_moments", None)
    again = erase(digits_source, LeaceEraser, Cache(tmp_path))
    assert again.certificate == first.certificate
    assert again.class_names == first.class_names
    for name, part in first.splits.items():
        assert torch.equal(again.splits[name].images, part.images)
    assert torch.equal(again.channel_std, first.channel_std)


def test_the_key_covers_all_that_changes_the_numbers_and_no_names(digits_source: Digits, tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def entries() -> int:
        return len(list(tmp_path.glob("*.safetensors")))

    erase(digits_source, LeaceEraser, cache)
    for i, (source, eraser, dtype, options) in enumerate(
        [
            (digits_source, IdentityEraser, torch.float32, {}),
            (digits_source, LeaceEraser, torch.float64, {}),
            (digits_source, LeaceEraser, torch.float32, {"rank_tolerance": 1e-8}),
            (dataclasses.replace(digits_source, split_seed=1), LeaceEraser, torch.float32, {}),
            (dataclasses.replace(digits_source, validation_size=99), LeaceEraser, torch.float32, {}),
        ]
    ):
        erase(source, eraser, cache, dtype, **options)
        assert entries() == i + 2
    erase(dataclasses.replace(digits_source, flip=True), LeaceEraser, cache)  # augmentation is not erasure
    assert entries() == 6


def test_float64_storage_is_exact(digits_source: Digits, tmp_path: Path) -> None:
    assert erase(digits_source, LeaceEraser, Cache(tmp_path), torch.float64).certificate["train"].mean_gap < 1e-14


def test_a_broken_guarantee_stores_nothing(digits_source: Digits, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(LeaceEraser, "transform", lambda self, x, z: x)
    with pytest.raises(BrokenGuaranteeError, match="LeaceEraser promises equal class means"):
        erase(digits_source, LeaceEraser, Cache(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_an_image_folder_is_decoded_once(tmp_path: Path, monkeypatch) -> None:
    write_images(tmp_path / "data", "train", 12)
    source, cache = folder(tmp_path / "data"), Cache(tmp_path / "cache")
    erase(source, IdentityEraser, cache)
    monkeypatch.setattr(type(source), "load", None)
    erase(source, LeaceEraser, cache)


def test_datasets_that_cannot_be_erased_are_refused(digits_source: Digits, tmp_path: Path, monkeypatch) -> None:
    def with_data(labels: list[int], names: tuple[str, ...], images: torch.Tensor | None = None):
        images = torch.rand(len(labels), 1, 2, 2) if images is None else images
        raw = RawImages(LabelledImages(images, torch.tensor(labels)), None, names)
        monkeypatch.setattr(Digits, "load", lambda self: raw)

    with_data([0] * 40, ("a",))
    with pytest.raises(ValueError, match="has 1 class: there is no class information to erase"):
        erase(digits_source, LeaceEraser, Cache(tmp_path))
    with_data([0] * 40 + [1], ("a", "b"))
    with pytest.raises(ValueError, match="class 1 has 1"):
        erase(digits_source, LeaceEraser, Cache(tmp_path))
    with_data([0, 1] * 20, ("a", "b"), torch.full((40, 1, 2, 2), float("nan")))
    with pytest.raises(ValueError, match="not finite"):
        erase(digits_source, IdentityEraser, Cache(tmp_path))


def test_the_version_is_part_of_the_key(digits_source: Digits, tmp_path: Path, monkeypatch) -> None:
    erase(digits_source, IdentityEraser, Cache(tmp_path))
    monkeypatch.setattr(pipeline, "ERASURE_VERSION", 10**6)
    erase(digits_source, IdentityEraser, Cache(tmp_path))
    assert len(list(tmp_path.glob("*.safetensors"))) == 2


def test_held_out_splits_are_erased_with_their_own_true_labels(digits_source: Digits, tmp_path: Path) -> None:
    control = erase(digits_source, IdentityEraser, Cache(tmp_path), torch.float64)
    erased = erase(digits_source, OracleLeaceEraser, Cache(tmp_path), torch.float64)
    train = control.splits["train"]
    eraser = OracleLeaceEraser.fit(train.images, train.labels)
    for name, part in control.splits.items():
        expected = eraser(part.images, part.labels)
        torch.testing.assert_close(erased.splits[name].images, expected, rtol=0, atol=1e-9)
        wrong = eraser(part.images, part.labels.flip(0))
        assert float((wrong - expected).abs().max()) > 0.1  # the labels matter
