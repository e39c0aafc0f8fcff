"""The gradient eraser (section 2.4): what its optimisation reaches on the digits, and the gradient it follows."""

import re
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from erasure import ClassMoments, GradientEraser, GradientOrdersEraser, QleaceEraser, on_progress
from erasure.certificate import Certificate, certify, out_of_range
from erasure.dataset import LabelledImages
from erasure.datasets.digits import Digits
from erasure.erasers.gradient import free, pull_back, values
from erasure.splits import splits
from erasure.transport import barycenter

PIXELS: dict[str, Any] = {"low": 0.0, "high": 1.0}


@dataclass(frozen=True)
class Erasure:
    """One optimisation of the digits, in float32 as the pipeline does it."""

    eraser: GradientEraser
    moments: ClassMoments
    before: dict[str, LabelledImages]
    after: dict[str, Tensor]

    def certificate(self, split: str, images: Tensor) -> Certificate:
        before = self.before[split]
        return certify(before.images, images, before.labels, self.moments)


@pytest.fixture(scope="module")
def digits_erasure(digits_source: Digits) -> Erasure:
    parts = splits(digits_source, digits_source.load())
    before = {
        name: LabelledImages(parts[name].images.float() / 16, parts[name].labels) for name in ("train", "validation")
    }
    moments = ClassMoments.fit(before["train"].images, before["train"].labels)
    eraser = GradientEraser.from_moments(moments, weights=(120.0, 12.0, 1.0), **PIXELS)  # as the YAML files have it
    return Erasure(eraser, moments, before, {name: eraser(part.images, part.labels) for name, part in before.items()})


@pytest.fixture
def few(digits) -> tuple[Tensor, Tensor]:
    """Sixty images of three digits."""
    x, z = digits
    rows = (z < 3).nonzero().squeeze(1)[:60]
    return x[rows], z[rows]


def test_gaps_nearly_close_on_the_digits_within_the_range_by_a_smaller_edit_than_qleaces(
    digits_erasure: Erasure,
) -> None:
    train = digits_erasure.before["train"]
    before = digits_erasure.certificate("train", train.images)
    after = digits_erasure.certificate("train", digits_erasure.after["train"])
    erased = QleaceEraser.from_moments(digits_erasure.moments)(train.images, train.labels)
    qleace = digits_erasure.certificate("train", erased)
    assert after.mean_gap <= 0.01 * before.mean_gap
    assert after.covariance_gap <= 0.05 * before.covariance_gap
    assert after.edit_size < qleace.edit_size
    assert out_of_range(erased, 0.0, 1.0) > 0.1
    assert max(out_of_range(images, 0.0, 1.0) for images in digits_erasure.after.values()) == 0


def test_held_out_images_are_moved_to_the_training_targets(digits_erasure: Erasure) -> None:
    part, erased = digits_erasure.before["validation"], digits_erasure.after["validation"]
    target, spread = digits_erasure.moments.mean, digits_erasure.moments.total.trace().sqrt()

    def distances(images: Tensor) -> Tensor:
        return (ClassMoments.fit(images, part.labels).means - target).norm(dim=1) / spread

    assert distances(part.images).min() > 0.3
    assert distances(erased).max() < 0.02
    # the held-out mean itself is another: its distance is not what has been closed
    assert (ClassMoments.fit(part.images, part.labels).mean - target).norm() / spread > 0.02
    # fifteen images of a class cannot have the target's rank: covariances come near, no more
    gaps = [digits_erasure.certificate("validation", images).covariance_gap for images in (part.images, erased)]
    assert gaps[1] < 0.2 * gaps[0]


def test_pixels_that_never_vary_stay_so_and_tell_no_class(digits_erasure: Erasure) -> None:
    train, erased = digits_erasure.before["train"], digits_erasure.after["train"]
    constant = (train.images == train.images[:1]).all(0)
    assert constant.any()
    assert torch.equal(erased[:, constant], train.images[:, constant])
    certificate = digits_erasure.certificate("train", erased)
    assert certificate.linear_r2 is not None
    assert certificate.linear_chance is not None
    assert certificate.linear_r2 < 2 * certificate.linear_chance


@pytest.mark.parametrize("ends", [{}, {"low": 0.0, "high": 1.0}])
def test_a_column_that_varies_between_classes_alone_tells_no_class(ends, caplog) -> None:
    z = torch.arange(240) % 3
    x = torch.rand(240, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** (1 + z[:, None])
    x[:, 3] = z / 2
    erased = GradientEraser(**ends).fit_transform(x, z)
    assert len(erased[:, 3].unique()) == 1
    assert float(erased[0, 3]) == pytest.approx(0.5)
    left = certify(x, erased, z)
    assert left.linear_r2 is not None
    assert left.linear_r2 < 1e-4
    assert not caplog.messages
    kept = GradientEraser(weights=(0.0, 24.0, 1.0), **ends).fit_transform(x, z)  # which asks for no equal means
    torch.testing.assert_close(kept[:, 3], x[:, 3], rtol=0, atol=0.01)


def test_targets_are_the_mean_and_the_barycenter_of_class_covariances(few) -> None:
    x, z = few
    x = x.flatten(1)[:, 18:22]  # pixels that vary in every class
    moments = ClassMoments.fit(x, z)
    eraser = GradientEraser.from_moments(moments, weights=(1.0, 1.0, 1.0))
    torch.testing.assert_close(eraser.mean, x.mean(0))
    exact = barycenter(moments.covariances, moments.weights, tolerance=1e-12).covariance
    # an excess of 1e-6, of which the covariance's error is about the root
    torch.testing.assert_close(eraser.covariance, exact, rtol=0, atol=3e-3 * float(exact.trace()))


def test_means_that_the_weights_leave_are_reported_where_they_can_be_found(caplog) -> None:
    z = torch.arange(200) % 2
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    GradientEraser().fit_transform(x + 2 * z[:, None], z)
    far = x + 1000 * z[:, None]
    GradientEraser(weights=(0.0, 24.0, 1.0)).fit_transform(far, z)  # which asks for no equal means
    assert not caplog.messages
    left = certify(far, GradientEraser().fit_transform(far, z), z)
    assert isinstance(left, Certificate)
    assert left.linear_r2 is not None
    assert left.linear_r2 > 0.5
    assert f"which explain {left.linear_r2:.2g} of the labels' variance linearly (0.015 for shuffled" in caplog.text
    assert "raise the first of weights=[150.0, 24.0, 1.0]" in caplog.text
    caplog.clear()
    GradientEraser(weights=(1e6, 24.0, 1.0)).fit_transform(far, z)
    assert not caplog.messages


@pytest.mark.parametrize("kind", [GradientEraser, GradientOrdersEraser])
def test_default_weights_leave_little_of_the_class_means(kind: type[GradientEraser]) -> None:
    z = torch.arange(300) % 3
    x = torch.randn(300, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[:, 0] += 2 * z
    certificate = certify(x, kind.fit(x, z)(x, z), z)
    assert isinstance(certificate, Certificate)
    assert certificate.linear_r2 is not None
    assert certificate.linear_r2 < 0.001
    assert certificate.covariance_gap < 0.05


@pytest.mark.parametrize("weights", [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (120.0, 12.0, 1.0)])
def test_loss_is_the_documented_one_and_its_gradient_is_autograds(few, weights: tuple[float, float, float]) -> None:
    x, z = few
    moments = ClassMoments.fit(x, z)
    eraser = GradientEraser.from_moments(moments, weights=weights)
    original = x[z == 1].flatten(1)
    noise = torch.rand(original.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moved = (original + 0.1 * noise).requires_grad_()
    total = moments.total
    shift = moved.mean(0) - moments.mean
    terms = (
        shift.square().sum() / total.trace(),
        (moved.T.cov(correction=0) - eraser.covariance).square().sum() / total.square().sum(),
        (moved - original).square().sum(1).mean() / total.trace(),
    )
    loss = len(moved) * sum(w * term for w, term in zip(weights, terms, strict=True))
    assert isinstance(loss, Tensor)
    loss.backward()
    value, slope = eraser._loss(moved.detach(), original, eraser.mean, eraser.covariance)
    assert value == pytest.approx(loss.item(), rel=1e-12)
    torch.testing.assert_close(slope, moved.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("weights", "iterations"),  # one shows the start; it is only near where covariances are all that counts
    [((120.0, 12.0, 1.0), 1), ((120.0, 0.0, 1.0), 1), ((0.0, 120.0, 1.0), 50), ((0.0, 0.0, 1.0), 1)],
)
def test_without_a_range_nothing_near_is_better(few, weights: tuple[float, float, float], iterations: int) -> None:
    x, z = few
    x = x[..., 2:4, 2:6]  # pixels that vary in every class
    eraser = GradientEraser(weights=weights, max_iterations=iterations)
    moved = eraser.fit_transform(x, z).flatten(1)
    target = eraser.mean, eraser.covariance
    for j in range(3):
        original = x[z == j].flatten(1)
        before, steepest = eraser._loss(original + 0.01, original, *target)
        after, slope = eraser._loss(moved[z == j], original, *target)
        assert after < before
        assert float(slope.norm()) < 1e-3 * float(steepest.norm())


def test_only_the_edit_counts_where_its_weight_is_all(few) -> None:
    x, z = few
    still = GradientEraser(weights=(0.0, 0.0, 1.0), max_iterations=30, **PIXELS).fit_transform(x, z)
    # black and white pixels start 1e-3 inside the range, from where the sigmoid's slope lets them back
    torch.testing.assert_close(still, x, rtol=0, atol=1.1e-3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_shape_and_dtype_are_kept(few, dtype: torch.dtype) -> None:
    x, z = few
    erased = GradientEraser(weights=(120.0, 12.0, 1.0), max_iterations=5, **PIXELS).fit_transform(x.to(dtype), z)
    assert erased.shape == x.shape
    assert erased.dtype == dtype
    assert 0 <= float(erased.min()) <= float(erased.max()) <= 1


def test_images_come_back_in_the_order_they_were_given_in(few) -> None:
    x, z = few
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    eraser, reports = GradientEraser(weights=(120.0, 12.0, 1.0), max_iterations=5, **PIXELS), list[tuple[str, float]]()
    with on_progress(lambda _title, done, detail: reports.append((detail, done))):
        erased = eraser.fit_transform(x, z)
    of_images = [done for detail, done in reports if "iteration" in detail]
    assert of_images == sorted(of_images)
    assert 0 <= of_images[0] < 0.3 < 0.9 < of_images[-1] <= 1
    assert [detail for detail, _ in reports[:3]] == [
        f"decomposition of class {j}" for j in range(3)
    ]  # before the first round
    # in float64: line searches amplify the rounding of sums in another order, in float32 to whole grey levels
    torch.testing.assert_close(eraser(x[order], z[order]), erased[order], rtol=0, atol=1e-11)


def test_another_range_is_kept_to(few) -> None:
    x, z = few
    x = x[..., 2:4, 2:6]  # pixels that vary in every class
    shifted = 4 * x - 2
    options: dict[str, Any] = {"weights": (120.0, 12.0, 1.0), "max_iterations": 8}
    erased = GradientEraser(low=-2.0, high=2.0, **options).fit_transform(shifted, z)
    assert -2 <= float(erased.min()) < -1 < 1 < float(erased.max()) <= 2
    plain = GradientEraser(**PIXELS, **options).fit_transform(x, z)
    torch.testing.assert_close(erased, 4 * plain - 2, rtol=0, atol=1e-9)  # the loss is relative: so is the result


@pytest.mark.parametrize("z_scored", [False, True])
def test_values_outside_a_given_range_are_refused_and_those_at_its_ends_are_not(few, z_scored: bool) -> None:
    x, z = few
    eraser = GradientEraser(weights=(1.0, 1.0, 1.0), max_iterations=2, **PIXELS)
    if z_scored:
        scale, shift = torch.full((64,), 3.3, dtype=torch.float64), torch.full((64,), -0.7, dtype=torch.float64)
        eraser.rescale_range(scale, shift)
        x = 3.3 * x - 0.7
    assert eraser.fit_transform(x.float(), z).isfinite().all()
    for outside in (x - 0.1, x + 0.1):
        with pytest.raises(ValueError, match=r"outside the range low=0 to high=1: widen it, or leave"):
            eraser.fit_transform(outside, z)


def test_a_split_without_some_class_is_optimised_all_the_same(few) -> None:
    x, z = few
    eraser = GradientEraser.from_moments(ClassMoments.fit(x, z), weights=(1.0, 1.0, 1.0), max_iterations=3)
    assert eraser(x[z == 2], z[z == 2]).shape == x[z == 2].shape
    one = (z == 1).nonzero()[:1, 0]
    assert eraser(x[one], z[one]).isfinite().all()
    assert eraser(x[:0], z[:0]).shape == (0, 1, 8, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": (1.0, -1.0, 1.0)}, "weights=[1.0, -1.0, 1.0]: none may be negative"),
        ({"weights": (0.0, 0.0, 0.0)}, "not all zero"),
        ({"low": 1.0, "high": 1.0}, "low=1.0, high=1.0: an empty range"),
        ({"low": 0.0}, "low=0.0, high=None: give both, or neither for no range"),
        ({"max_iterations": 0}, "max_iterations=0, history=10: must be at least 1"),
        ({"history": 0}, "max_iterations=50, history=0: must be at least 1"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    allowed: dict[str, Any] = {"weights": (1.0, 1.0, 1.0)}
    with pytest.raises(ValueError, match=re.escape(message)):
        GradientEraser(**allowed | options)


LOW, HIGH = ENDS = torch.tensor([[0.0, -2.0, 5.0], [1.0, 2.0, 5.5]], dtype=torch.float64)
INSIDE = LOW + torch.rand(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * (HIGH - LOW)


def test_free_numbers_give_back_values_and_none_leaves_the_range() -> None:
    inside = INSIDE.clamp(LOW + 2e-3 * (HIGH - LOW), HIGH - 2e-3 * (HIGH - LOW))  # not at the very ends
    torch.testing.assert_close(values(ENDS, free(ENDS, inside))[0], inside)
    far = torch.tensor([[-1e3], [1e3]], dtype=torch.float64).expand(2, 3)
    assert values(ENDS, far)[0].equal(ENDS)
    assert free(ENDS, ENDS).isfinite().all()


def test_gradients_are_pulled_back_as_autograd_does() -> None:
    u = free(ENDS, INSIDE).requires_grad_()
    weights = torch.arange(1.0, 61.0, dtype=torch.float64).view(20, 3)
    (expected,) = torch.autograd.grad((weights * values(ENDS, u)[0]).sum(), u)
    torch.testing.assert_close(pull_back(ENDS, weights.clone(), values(ENDS, u.detach())[1]), expected)


@pytest.mark.parametrize("scale", [1e-30, 3e-4, 1e30])
@pytest.mark.parametrize("eraser", [GradientEraser, GradientOrdersEraser])
def test_examples_of_a_scale_that_the_search_cannot_take_are_refused(
    eraser: type[GradientEraser], scale: float
) -> None:
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.raises(ValueError, match=r"the standard deviation of x is \S+: multiply x by a number"):
        eraser.fit(x * scale, torch.arange(60) % 2)


@pytest.mark.parametrize("eraser", [GradientEraser, GradientOrdersEraser])
def test_examples_that_are_all_alike_are_refused(eraser: type[GradientEraser]) -> None:
    with pytest.raises(ValueError, match="all examples are alike: there is nothing to erase"):
        eraser.fit(torch.ones(20, 3), torch.arange(20) % 2)
