"""The pipeline: fitted on train, applied to every split, certified, cached under all that determines it."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pytest
import torch
from torch import Tensor

from erasure import (
    AlfQleaceEraser,
    ClassMoments,
    Eraser,
    IdentityEraser,
    LeaceEraser,
    OracleLeaceEraser,
    QleaceEraser,
    pipeline,
)
from erasure.certificate import BrokenGuaranteeError
from erasure.dataset import LabelledImages, RawImages, Source
from erasure.datasets.arrays import Arrays
from erasure.datasets.digits import Digits
from erasure.pipeline import erased_dataset, fitting_device
from erasure.splits import splits
from erasure.store.cache import Cache, Entry
from tests.conftest import gaps


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


def test_float64_storage_is_exact(digits_source: Digits, tmp_path: Path) -> None:
    assert erase(digits_source, LeaceEraser, Cache(tmp_path), torch.float64).certificate["train"].mean_gap < 1e-14


def test_a_broken_guarantee_stores_nothing(digits_source: Digits, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(LeaceEraser, "transform", lambda self, x, z: x)
    with pytest.raises(BrokenGuaranteeError, match="LeaceEraser promises equal class means"):
        erase(digits_source, LeaceEraser, Cache(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_datasets_that_cannot_be_erased_are_refused(digits_source: Digits, tmp_path: Path, monkeypatch) -> None:
    def with_data(labels: list[int], names: tuple[str, ...], images: torch.Tensor | None = None):
        images = torch.rand(len(labels), 1, 2, 2) if images is None else images
        raw = RawImages(LabelledImages(images, torch.tensor(labels)), None, names)
        monkeypatch.setattr(Digits, "load", lambda self: raw)

    with_data([0] * 40, ("a",))
    with pytest.raises(ValueError, match="has 1 class: there is no class information to erase"):
        erase(digits_source, LeaceEraser, Cache(tmp_path))
    with_data([0] * 40 + [1], ("a", "b"))
    with pytest.raises(ValueError, match="class b has 1"):
        erase(digits_source, LeaceEraser, Cache(tmp_path))
    with_data([0, 1] * 20, ("a", "b"), torch.full((40, 1, 2, 2), float("nan")))
    with pytest.raises(ValueError, match="not finite"):
        erase(digits_source, IdentityEraser, Cache(tmp_path))


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


class OnExamples(IdentityEraser):
    """Remembers what it was fitted on."""

    fitted_on: ClassVar[tuple[Tensor, Tensor, ClassMoments]]

    @classmethod
    def fit_examples(cls, x: Tensor, z: Tensor, moments: ClassMoments, **options: Any) -> Self:
        cls.fitted_on = x, z, moments
        return super().fit_examples(x, z, moments, **options)


@pytest.mark.parametrize("normalize", ["none", "zscore"])
def test_an_eraser_may_be_fitted_on_the_training_split_as_it_is_erased(
    digits_source: Digits, tmp_path: Path, normalize: Literal["none", "zscore"]
) -> None:
    source = dataclasses.replace(digits_source, normalize=normalize)
    train = erase(source, OnExamples, Cache(tmp_path)).splits["train"]
    x, z, moments = OnExamples.fitted_on
    assert torch.equal(x, train.images)
    assert torch.equal(z, train.labels)
    torch.testing.assert_close(moments.means, ClassMoments.fit(x, z).means, rtol=0, atol=1e-6)


def vectors(path: Path, x: Tensor, z: Tensor, normalize: Literal["none", "zscore"] = "none") -> Arrays:
    np.savez(path, x=x.numpy(), y=z.numpy())
    return Arrays(
        name="vectors", path=str(path), flip=False, validation_size=50, test_fraction=0.2, split_seed=0,
        normalize=normalize,
    )  # fmt: skip


@pytest.fixture
def labelled() -> tuple[Tensor, Tensor]:
    """Vectors [900, 12] in float64 whose three classes differ in their means."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randint(3, (900,), generator=generator)
    x = torch.randn(900, 12, generator=generator, dtype=torch.float64)
    return x + 2 * torch.nn.functional.one_hot(z, 12), z


@pytest.mark.parametrize("eraser", [LeaceEraser, OracleLeaceEraser, QleaceEraser, AlfQleaceEraser])
@pytest.mark.parametrize("normalize", ["none", "zscore"])
def test_moments_are_those_of_the_numbers_that_are_erased(
    labelled, tmp_path: Path, eraser: type[Eraser], normalize: Literal["none", "zscore"]
) -> None:
    """Nearly collinear columns in float64, stored in float32: rounding before erasing broke the guarantee (6e-5)."""
    x, z = labelled
    noise = torch.randn(900, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = torch.cat([x, x[:, :1] + 1e-6 * noise], 1)
    certificate = erase(vectors(tmp_path / "v.npz", x, z, normalize), eraser, Cache(tmp_path)).certificate["train"]
    assert certificate.mean_gap < 1e-7
    assert certificate.linear_r2 is not None
    assert certificate.linear_r2 < 1e-3


def test_an_offset_that_storing_would_not_survive_is_refused_and_z_scoring_removes_it(labelled, tmp_path: Path) -> None:
    x, z = labelled
    plain = erase(vectors(tmp_path / "plain.npz", x, z), IdentityEraser, Cache(tmp_path)).certificate["train"]
    with pytest.raises(ValueError, match=r"column 0 has mean 1e\+09 .* set normalize=zscore"):
        erase(vectors(tmp_path / "far.npz", x + 1e9, z), IdentityEraser, Cache(tmp_path))
    with pytest.raises(ValueError, match="subtract each column's mean in float64 and write the file again"):
        erase(vectors(tmp_path / "coarse.npz", (300 * x + 1e9).float(), z, "zscore"), LeaceEraser, Cache(tmp_path))
    far = erase(vectors(tmp_path / "far.npz", x + 1e9, z, "zscore"), IdentityEraser, Cache(tmp_path))
    assert far.certificate["train"].linear_r2 == pytest.approx(plain.linear_r2, rel=1e-3)
    assert plain.linear_r2 is not None
    assert plain.linear_r2 > 0.3
    erased = erase(vectors(tmp_path / "far.npz", x + 1e9, z, "zscore"), LeaceEraser, Cache(tmp_path))
    assert erased.certificate["train"].mean_gap < 1e-7


def test_bytes_are_erased_in_the_precision_of_their_moments(tmp_path: Path, monkeypatch, digits_source: Digits) -> None:
    """Grey levels over 255 are no float32: rounded once, after erasing, as erasing float64 images and rounding does."""
    generator = torch.Generator().manual_seed(0)
    z = torch.arange(600) % 3
    images = (torch.rand(600, 1, 3, 3, generator=generator) * 200 + 20 * z[:, None, None, None]).to(torch.uint8)
    raw = RawImages(LabelledImages(images, z), None, ("a", "b", "c"))
    monkeypatch.setattr(Digits, "load", lambda self: raw)
    train = splits(digits_source, raw)["train"]
    exact = train.images.double() / 255
    expected = LeaceEraser.fit(exact, train.labels)(exact).float()
    erased = erase(digits_source, LeaceEraser, Cache(tmp_path)).splits["train"].images
    assert float((erased != expected).double().mean()) < 1e-3  # sums in another order


class Keys(Cache):
    """Notes what is asked for, and builds nothing."""

    class Asked(Exception):  # noqa: N818
        pass

    def fetch(self, key: str, build: Callable[[], Entry]) -> Entry:
        raise self.Asked(key)


def key_of(source: Digits, eraser: type = LeaceEraser, dtype: torch.dtype = torch.float32, **options: Any) -> str:
    with pytest.raises(Keys.Asked) as asked:
        erased_dataset(source, eraser, options, dtype=dtype, cache=Keys("unused"))
    return str(asked.value)


CHANGES: dict[str, Any] = {
    "name": None,  # a label: it opens the file's name, and is no part of the digest
    "flip": None,  # augmentation, after erasure
    "validation_size": 99,
    "test_fraction": 0.3,
    "split_seed": 7,
    "normalize": "zscore",
}


def test_every_field_of_a_dataset_that_changes_its_numbers_changes_the_key(digits_source: Digits) -> None:
    assert {field.name for field in dataclasses.fields(Digits)} == set(CHANGES)  # a new field must be decided on
    keys = {key_of(digits_source)}
    for field, value in CHANGES.items():
        if value is not None:
            keys.add(key_of(dataclasses.replace(digits_source, **{field: value})))
    assert len(keys) == 5
    assert key_of(dataclasses.replace(digits_source, flip=True)) == key_of(digits_source)
    renamed = key_of(dataclasses.replace(digits_source, name="scans"))
    assert renamed == key_of(digits_source).replace("digits", "scans", 1)


def test_other_pixels_another_eraser_option_dtype_or_version_have_another_key(
    digits_source: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [
        key_of(digits_source),
        key_of(digits_source, QleaceEraser),
        key_of(digits_source, dtype=torch.float64),
        key_of(digits_source, dtype=torch.bfloat16),
        key_of(digits_source, tolerance=1e-3),
        key_of(digits_source, tolerance=1e-4),
        key_of(digits_source, steps=1),
        key_of(digits_source, weights=[1.0, 2.0]),
        key_of(digits_source, weights=[2.0, 1.0]),
    ]
    monkeypatch.setattr(Digits, "content", lambda self: "other pixels")
    keys.append(key_of(digits_source))
    monkeypatch.setattr(pipeline, "ERASURE_VERSION", 10**6)
    keys.append(key_of(digits_source))
    assert len(set(keys)) == len(keys)
    assert key_of(digits_source, steps=1, tolerance=2) == key_of(digits_source, tolerance=2, steps=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Textures(Source):
    """Three classes of 60 images, and the side that they are brought to."""

    size: int
    count: int = 180
    version = 1

    def load(self) -> RawImages:
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(self.count, 3, self.size, self.size, generator=generator)
        return RawImages(LabelledImages(images, torch.arange(self.count) % 3), None, ("bark", "cloth", "sand"))

    def content(self) -> str:
        return "textures"


def test_too_few_images_for_an_eraser_are_named(tmp_path, caplog) -> None:
    options = {"name": "textures", "flip": True, "validation_size": None, "test_fraction": 0.2, "split_seed": 0}
    for _ in ("computed", "cached"):
        caplog.clear()
        erase(Textures(size=12, **options), LeaceEraser, Cache(tmp_path))
        assert caplog.messages == [
            "class moments cannot be estimated from 130 examples (43 in the smallest class) of 432 values each: "
            "erasure makes them equal on these very examples, and not on others; take smaller images (dataset.size=6) "
            "or more of them"
        ]
    caplog.clear()
    erase(Textures(size=6, **options), LeaceEraser, Cache(tmp_path))  # as it says
    erase(Textures(size=12, **options), IdentityEraser, Cache(tmp_path))
    assert caplog.messages == []
    erase(Textures(size=12, count=150, **options), LeaceEraser, Cache(tmp_path))
    assert "from 108 examples" in caplog.text
    assert "dataset.size=5)" in caplog.text, "images of 3 * 6 * 6 values are no fewer than 108"
    caplog.clear()
    erase(Textures(size=6, **options), QleaceEraser, Cache(tmp_path))
    (warning,) = [record.getMessage() for record in caplog.records if "cannot be estimated" in record.getMessage()]
    assert "class covariances cannot be estimated from the 43 examples of a class, of 108 values each" in warning
    assert warning.endswith("; take more of them")


GPU, CPU = torch.device("cuda"), torch.device("cpu")


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Gigabytes free of each kind of device."""
    left = {"cuda": 80.0, "cpu": 24.0}
    monkeypatch.setattr("erasure.pipeline.free_bytes", lambda device: 1e9 * left[device.type])
    return left


def test_what_fits_is_fitted_on_the_device_and_what_does_not_on_the_cpu(free, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert fitting_device(QleaceEraser, 3072, 10, GPU) == GPU
    free["cuda"] = 1
    assert fitting_device(QleaceEraser, 3072, 10, GPU) == CPU
    assert "QleaceEraser is fitted on the CPU: it needs 3.3 GB in float64" in caplog.text


def test_cifarnet_fits_80_gigabytes_and_what_fits_nowhere_is_refused_before_it_starts(free) -> None:
    """The paper's CIFARNet: 64 x 64 x 3 = 12,288 values, ten classes."""
    assert QleaceEraser.fitting_bytes(12_288, 10) < 60e9
    assert fitting_device(QleaceEraser, 12_288, 10, GPU) == GPU
    free["cpu"] = 32
    assert fitting_device(LeaceEraser, 12_288, 10, CPU) == CPU
    with pytest.raises(ValueError, match="QleaceEraser needs about 53 GB at once for 12,288 values per example"):
        fitting_device(QleaceEraser, 12_288, 10, CPU)


def test_devices_without_float64_leave_it_to_the_cpu(free) -> None:
    assert fitting_device(LeaceEraser, 64, 10, torch.device("mps")) == CPU
