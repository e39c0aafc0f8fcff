"""z-score per coordinate: exact statistics, promises kept on the scaled data, undone for display."""

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor

from erasure import ClassMoments, GradientEraser, IdentityEraser, LeaceEraser, QleaceEraser
from erasure.datasets.digits import Digits
from erasure.eraser import Eraser
from erasure.image_cache import raw_images
from erasure.pipeline import ErasedDataset, erased_dataset
from erasure.splits import splits
from erasure.store.cache import Cache
from erasure.zscore import Preprocessing, Scaling, require_precision
from tests.conftest import gaps


@pytest.fixture
def zscored(digits_source: Digits) -> Digits:
    return dataclasses.replace(digits_source, normalize="zscore")


def erase(source: Digits, eraser: type[Eraser], place: Path, dtype=torch.float32, **options) -> ErasedDataset:
    return erased_dataset(source, eraser, options, dtype=dtype, cache=Cache(place))


def training_pixels(source: Digits, place: Path) -> tuple[Tensor, Tensor]:
    train = splits(source, raw_images(source, Cache(place)))["train"]
    return train.images, train.labels


def test_every_varying_coordinate_has_mean_0_and_variance_1_on_train(zscored: Digits, tmp_path: Path) -> None:
    pixels, _ = training_pixels(zscored, tmp_path)
    constant = pixels.amax(0) == pixels.amin(0)
    assert constant.any()
    dataset = erase(zscored, IdentityEraser, tmp_path, torch.float64)
    train = dataset.splits["train"].images
    assert float(train.mean(0).abs().max()) < 1e-12
    torch.testing.assert_close(train.std(0, correction=0)[~constant], torch.ones(int((~constant).sum())).double())
    assert (train.std(0)[constant] == 0).all()
    assert dataset.scaling is not None
    assert (dataset.scaling.scale[constant] == 1).all()
    test = dataset.splits["test"].images  # scaled by the training split's numbers, not by its own
    assert 0.01 < float(test.mean(0).abs().max()) < 1


def test_a_pixel_that_varies_once_counts_as_varying_and_rounding_does_not() -> None:
    images = torch.full((3000, 1, 1, 2), 77, dtype=torch.uint8)
    images[5, 0, 0, 1] = 78
    moments = ClassMoments.fit(images, torch.arange(3000) % 7).rescale(1 / 255)
    scale = Scaling.zscore(images, moments).scale.flatten()
    assert float(scale[0]) == 1
    assert float(scale[1]) == pytest.approx(255 * 3000**0.5, rel=1e-3)


def test_scaling_is_undone_for_display(zscored: Digits, digits_source: Digits, tmp_path: Path) -> None:
    scaled, plain = (erase(source, IdentityEraser, tmp_path) for source in (zscored, digits_source))
    for name, part in scaled.splits.items():
        torch.testing.assert_close(scaled.pixels(part.images), plain.splits[name].images, rtol=0, atol=2e-6)
        assert torch.equal(plain.pixels(plain.splits[name].images), plain.splits[name].images)


@pytest.mark.parametrize(("eraser", "order"), [(LeaceEraser, 1), (QleaceEraser, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_promises_hold_on_z_scored_data(eraser, order: int, dtype, zscored: Digits, tmp_path: Path) -> None:
    before = erase(zscored, IdentityEraser, tmp_path, dtype)
    after = erase(zscored, eraser, tmp_path, dtype)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-10
    train, original = after.splits["train"], before.splits["train"].images
    measured = gaps(train.images, train.labels, original)
    certified = after.certificate["train"]
    assert (certified.mean_gap, certified.covariance_gap) == pytest.approx(measured, rel=1e-3, abs=tolerance)
    assert max(measured[:order]) < tolerance
    control = gaps(original, train.labels, original)
    assert min(control) > 0.1


def test_erasing_before_and_after_scaling_differ(zscored: Digits, digits_source: Digits, tmp_path: Path) -> None:
    assert zscored.identity() != digits_source.identity()
    scaled, plain = (erase(source, QleaceEraser, tmp_path) for source in (zscored, digits_source))
    assert scaled.certificate != plain.certificate
    pixels = scaled.pixels(scaled.splits["train"].images)
    assert float((pixels - plain.splits["train"].images).abs().max()) > 0.01


def test_out_of_range_counts_impossible_pixels(zscored: Digits, tmp_path: Path) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        control = erase(zscored, IdentityEraser, tmp_path, dtype)
        assert {c.out_of_range for c in control.certificate.values()} == {0.0}  # black is in range, rounding or not
    erased = erase(zscored, LeaceEraser, tmp_path, torch.float64)
    pixels = erased.pixels(erased.splits["train"].images)
    outside = ((pixels < -1e-9) | (pixels > 1 + 1e-9)).double().mean()
    assert float(outside) > 0
    assert erased.certificate["train"].out_of_range == pytest.approx(float(outside), abs=0.02)


def test_the_gradient_eraser_stays_among_possible_pixels(zscored: Digits, tmp_path: Path) -> None:
    erased = erase(zscored, GradientEraser, tmp_path, weights=(120.0, 12.0, 1.0), max_iterations=30, low=0.0, high=1.0)
    certificate = erased.certificate["train"]
    assert certificate.out_of_range == 0
    before = erase(zscored, IdentityEraser, tmp_path).certificate["train"]
    assert certificate.mean_gap < 0.5 * before.mean_gap
    assert certificate.covariance_gap < 0.5 * before.covariance_gap
    pixels = erased.pixels(erased.splits["train"].images)
    assert float(pixels.max()) > 0.9  # the whole range is used, not that of 0..1 in units of deviations
    assert float(erased.splits["train"].images.max()) > 1


def test_training_images_are_standardised_about_zero(zscored: Digits, tmp_path: Path) -> None:
    """z-scored images are centred already; channels are then only brought to variance 1, for all erasers alike."""
    to_device = pytest.importorskip("train.device_images").to_device
    dataset = erase(zscored, IdentityEraser, tmp_path)
    pixels, _ = training_pixels(zscored, tmp_path)
    varying = float((pixels.amax(0) != pixels.amin(0)).double().mean())
    assert float(dataset.channel_mean.abs().max()) < 1e-7
    assert float(dataset.channel_std) == pytest.approx(varying**0.5, rel=1e-4)
    train = to_device(dataset, crop_padding=0.125, flip=False, device=torch.device("cpu"))["train"]
    assert float(train.images.std()) == pytest.approx(1, rel=1e-4)
    leace = erase(zscored, LeaceEraser, tmp_path)
    assert torch.equal(leace.channel_std, dataset.channel_std)


def test_a_float_pixel_that_never_varies_is_only_centred() -> None:
    images = torch.rand(1000, 1, 1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    images[..., 0] = 0.1
    moments = ClassMoments.fit(images, torch.arange(1000) % 3)
    assert float(moments.total[0, 0]) == 0
    scaling = Scaling.zscore(images, moments)
    assert float(scaling.scale.flatten()[0]) == 1
    assert float(scaling(images)[..., 0].abs().max()) < 1e-6
    assert float(scaling(images)[..., 1].std(correction=0)) == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("zscore", [False, True])
def test_images_are_copied_only_where_their_numbers_change(dtype: torch.dtype, zscore: bool) -> None:
    images = (torch.rand(20, 1, 2, 2, generator=torch.Generator().manual_seed(0)) * 5).to(dtype)
    scaling = Scaling(torch.full((1, 2, 2), 3.0).double(), torch.full((1, 2, 2), -1.0).double()) if zscore else None
    pixels = Preprocessing(5, True, torch.float32, torch.device("cpu"), scaling)
    unit = images.double() / (5 if dtype == torch.uint8 else 1)
    expected = (3 * unit - 1 if zscore else unit).float()
    rounded = pixels.rounded(images)
    assert torch.equal(rounded, expected)
    assert (rounded.data_ptr() == images.data_ptr()) == (dtype == torch.float32 and not zscore)
    assert torch.equal(pixels.rounded(images[:7], images[7:]), expected)
    assert torch.equal(torch.cat(list(pixels.batches(images))), expected)
    assert torch.equal(
        pixels.ends(images.shape[1:])[:, 0, 0, 0], torch.tensor([-1.0, 2.0] if zscore else [0.0, 1.0]).double()
    )


@pytest.mark.parametrize(
    ("offset", "spread", "dtype", "refused"),
    [
        (1e9, 1.0, torch.float32, True),
        (1e5, 1.0, torch.float32, True),
        (1e3, 1.0, torch.float32, False),
        (1e3, 1e-3, torch.float32, True),
        (1e9, 1.0, torch.float64, False),
        (1e14, 1.0, torch.float64, True),
        (1.0, 1.0, torch.bfloat16, False),
        (10.0, 1.0, torch.bfloat16, True),
    ],
)
def test_offsets_that_rounding_would_blur_are_refused(
    offset: float, spread: float, dtype: torch.dtype, refused: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(500, 3, generator=generator, dtype=torch.float64)
    x[:, 1] = offset + spread * x[:, 1]
    x[:, 2] = 1e9 + 0.3  # constant: nothing to blur
    moments = ClassMoments.fit(x, torch.arange(500) % 2)
    if not refused:
        return require_precision(x, moments, dtype, "do it")
    with pytest.raises(
        ValueError, match=r"column 1 has mean .* blurs it by more than a thousandth, as 1 of 3.*; do it"
    ):
        require_precision(x, moments, dtype, "do it")
    return None


def test_offsets_that_have_made_all_vectors_alike_are_refused() -> None:
    x = (torch.rand(50, 3) + 1e9).float()
    with pytest.raises(ValueError, match="all training examples are alike"):
        require_precision(x, ClassMoments.fit(x, torch.arange(50) % 2), torch.float32, "")
