"""The reproduction of the paper's gradient erasure: where it starts, when it stops, and what it leaves."""

import pytest
import torch
from torch import Tensor

from erasure import ClassMoments, LeaceEraser, PublishedGradientEraser
from erasure.erasers.qleace_truncated import shrunk


@pytest.fixture(scope="module")
def pixels(digits: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Inner pixels of three digits, between black and white, and their labels."""
    x, z = digits
    rows = z < 3
    return (x[rows][..., 2:6, 2:6] - x.min()).flatten(1).float() / (x.max() - x.min()).float(), z[rows]


def unlike(x: Tensor, z: Tensor) -> float:
    """Return how far class covariances are from each other."""
    moments = ClassMoments.fit(x, z)
    return sum(float((moments.covariance(j) - moments.within).norm()) for j in range(3))


def test_it_aims_at_the_unbiased_covariance_after_leace(pixels: tuple[Tensor, Tensor]) -> None:
    x, z = pixels[0].double(), pixels[1]
    eraser = PublishedGradientEraser.from_moments(ClassMoments.fit(x, z))
    torch.testing.assert_close(eraser.covariance, LeaceEraser.fit(x, z)(x).T.cov(), rtol=1e-9, atol=1e-9)


def test_its_loss_falls_from_the_images_of_leace_on(pixels: tuple[Tensor, Tensor]) -> None:
    x, z = pixels
    leace = LeaceEraser.fit(x, z)(x)
    target = shrunk(leace.T.cov(), len(x)).clamp(min=0)
    erased = PublishedGradientEraser(weights=(1.0, 1.0, 0.1), max_iterations=40).fit_transform(x, z)
    start = leace.clamp(1e-7, 1 - 1e-7)

    def loss(y: Tensor, j: int) -> float:
        y, before = y[z == j], start[z == j]
        gaps = (y.mean(0) - x.mean(0)).norm() + (y.T.cov() - target).norm()
        return float(gaps + 0.1 * (y - before).square().mean())

    assert all(loss(erased, j) < 0.2 * loss(start, j) for j in range(3))
    assert unlike(erased, z) < 0.2 * unlike(start, z)


def test_it_ends_as_soon_as_no_derivative_is_above_1e_7(pixels: tuple[Tensor, Tensor]) -> None:
    x, z = pixels
    erased = PublishedGradientEraser(weights=(1e-6, 1e-6, 1e-4)).fit_transform(x, z)
    torch.testing.assert_close(erased, LeaceEraser.fit(x, z)(x).clamp(0, 1), rtol=0, atol=1e-6)


def test_the_scale_of_the_examples_does_not_matter(pixels: tuple[Tensor, Tensor]) -> None:
    x, z = pixels
    scale, shift = 1 / (x.std(0) + 0.1), -x.mean(0)
    scaled = PublishedGradientEraser(max_iterations=2)
    scaled.rescale_range(scale.double(), (shift * scale).double())
    again = scaled.fit_transform((x + shift) * scale, z) / scale - shift
    torch.testing.assert_close(again, PublishedGradientEraser(max_iterations=2).fit_transform(x, z), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("low", "high"), [(0.0, 255.0), (-1.0, 1.0), (0.25, 0.5)])
def test_weights_are_of_pixels_between_0_and_1_whatever_the_range(
    pixels: tuple[Tensor, Tensor], low: float, high: float
) -> None:
    x, z = pixels[0].double(), pixels[1]
    options = {"weights": (1.0, 1.0, 0.1), "max_iterations": 10}
    expected = PublishedGradientEraser(**options).fit_transform(x, z)
    erased = PublishedGradientEraser(**options, low=low, high=high).fit_transform(low + (high - low) * x, z)
    torch.testing.assert_close((erased - low) / (high - low), expected, rtol=0, atol=1e-6)


def test_examples_without_a_range_are_refused(pixels: tuple[Tensor, Tensor]) -> None:
    eraser = PublishedGradientEraser()
    eraser.range = None
    with pytest.raises(ValueError, match="no such range: use GradientEraser"):
        eraser.fit_transform(*pixels)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_one_example_of_a_class_moves_towards_the_mean_alone(pixels: tuple[Tensor, Tensor], dtype: torch.dtype) -> None:
    """Its covariance is zero; w_mean ‖y - m̄‖ + w_edit ‖y - y0‖² / d is least at a distance of w_mean d / (2 w_edit)."""
    x, z = (part[:40] for part in pixels)
    x = 0.1 + 0.8 * x.double()
    eraser = PublishedGradientEraser.from_moments(ClassMoments.fit(x, z))
    start = LeaceEraser.fit(x, z)(x[:1])
    towards = x.mean(0) - start
    expected = start + towards * min(1.0, 0.01 * x.shape[1] / 2 / float(towards.norm()))
    erased = eraser(x[:1].to(dtype), z[:1])
    torch.testing.assert_close(erased.double(), expected, rtol=0, atol=1e-4 if dtype == torch.float64 else 2e-3)
    several = torch.tensor([0, *(z != z[0]).nonzero().squeeze(1).tolist()])  # one of its class, more of others
    torch.testing.assert_close(eraser(x[several].to(dtype), z[several])[:1].double(), expected, rtol=0, atol=2e-3)
