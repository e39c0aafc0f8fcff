"""Sums of products of 8-bit images are exact integers, whichever way they are multiplied."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from erasure import ClassMoments
from erasure.integer_moments import byte_gram, integer_moments, multiplies_bytes

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]

COLUMNS: dict[str, Callable[[int, torch.Generator], Tensor]] = {
    "random": lambda n, g: torch.randint(0, 256, (n,), generator=g),
    "dark": lambda n, g: torch.randint(0, 17, (n,), generator=g),
    "black": lambda n, g: torch.zeros(n),
    "white": lambda n, g: torch.full((n,), 255),
    "nearly black": lambda n, g: torch.arange(n) == n // 2,
    "nearly white": lambda n, g: 255 - (torch.arange(n) == n // 3).long(),
    "alternating": lambda n, g: 255 * (torch.arange(n) % 2),
    "steps": lambda n, g: 255 * (torch.arange(n) >= n // 2),
}


def pixels(n: int, *kinds: str, seed: int = 0) -> Tensor:
    """uint8 images [n, d], a column per kind."""
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([COLUMNS[kind](n, generator).to(torch.uint8) for kind in kinds], dim=1)


def mixed(n: int, d: int) -> Tensor:
    """uint8 images [n, d] with columns of every kind."""
    kinds = list(COLUMNS)
    return pixels(n, *(kinds[i % len(kinds)] for i in range(d)))


def integer_gram(images: Tensor, shift: int) -> Tensor:
    """Σ (x - s)(x - s)ᵀ [d, d] in int64, the slow way."""
    centred = images.cpu().long() - shift
    return centred.T @ centred


def rational_moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and scatter from integers of any size; one correctly rounded division each."""
    n = len(images)
    total, products = images.long().sum(0).tolist(), integer_gram(images, 0).tolist()
    mean = [t / n for t in total]
    scatter = [
        [(n * p - s * t) / n for p, t in zip(row, total, strict=True)] for row, s in zip(products, total, strict=True)
    ]
    return torch.tensor(mean, dtype=torch.float64), torch.tensor(scatter, dtype=torch.float64)


def equal_to_the_bit(measured: Tensor, expected: Tensor) -> bool:
    return measured.dtype == torch.float64 and torch.equal(measured.cpu(), expected.double())


def needs_byte_products(device: str) -> None:
    if not multiplies_bytes(torch.device(device)):
        pytest.skip("this processor's 8-bit products may saturate, and are not used")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("n", "d"), [(1, 24), (2, 32), (31, 24), (32, 24), (33, 24), (4097, 24), (65535, 24), (65536, 24), (65537, 24)]
)
def test_byte_products_are_exact(n: int, d: int, device: str) -> None:
    needs_byte_products(device)
    images = mixed(n, d)
    assert equal_to_the_bit(byte_gram(images.to(device)), integer_gram(images, 128))


def test_the_largest_byte_sums_do_not_overflow() -> None:
    """2¹⁷ products (0 - 128)² are 2³¹: one more than 32 bits hold."""
    needs_byte_products("cpu")
    n = 2**17 + 32
    images = pixels(n, *["black"] * 24)
    assert equal_to_the_bit(byte_gram(images), torch.full((24, 24), n * 2**14))


@pytest.mark.parametrize(("n", "d"), [(1, 24), (2, 8), (1000, 23), (4096, 24), (4097, 23), (50_000, 24), (50_000, 23)])
def test_mean_and_scatter_are_the_correctly_rounded_ones(n: int, d: int) -> None:
    images = mixed(n, d)
    for measured, expected in zip(integer_moments(images), rational_moments(images), strict=True):
        assert equal_to_the_bit(measured, expected)


def test_a_constant_pixel_has_no_scatter_and_a_nearly_constant_one_the_right_one() -> None:
    """In a scatter with other pixels of variance 1e4, where a plain correction of the mean loses 8 digits."""
    n = 50_000
    mean, scatter = integer_moments(pixels(n, "black", "white", "nearly black", *["random"] * 21))
    assert mean[:2].tolist() == [0, 255]
    assert scatter[:2].abs().max() == 0
    assert float(scatter[2, 2]) == (n - 1) / n
    assert torch.equal(scatter, scatter.T)


def labelled(n: int = 600, shape: tuple[int, ...] = (3, 4, 2), k: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    d = torch.Size(shape).numel()
    return mixed(n, d).view(n, *shape), torch.randint(k, (n,), generator=generator)


def assert_same(measured: ClassMoments, expected: ClassMoments) -> None:
    """Equal to the rounding of float64 sums, relative to the largest grey level or variance."""
    assert torch.equal(measured.counts, expected.counts)
    for a, b in ((measured.means, expected.means), (measured.covariances, expected.covariances)):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13 * float(b.abs().max()))


def test_class_moments_of_bytes_are_exact_and_those_of_float64() -> None:
    x, z = labelled()
    measured = ClassMoments.fit(x, z)
    assert_same(measured, ClassMoments.fit(x.double(), z))
    for j in range(3):
        mean, scatter = rational_moments(x[z == j].flatten(1))
        assert equal_to_the_bit(measured.means[j], mean)
        assert equal_to_the_bit(measured.covariances[j], scatter / int((z == j).sum()))


def test_the_order_of_bytes_does_not_matter_to_the_bit() -> None:
    x, z = labelled(5000)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    first, second = ClassMoments.fit(x, z), ClassMoments.fit(x[order], z[order])
    assert torch.equal(first.means, second.means)
    assert torch.equal(first.covariances, second.covariances)


@pytest.mark.parametrize("vector", [False, True])
def test_rescaled_moments_are_the_moments_of_rescaled_images(vector: bool) -> None:
    x, z = labelled()
    generator = torch.Generator().manual_seed(1)
    scale = torch.rand(24, generator=generator) - 0.5 if vector else 1 / 255
    shift = torch.randn(24, generator=generator) if vector else -0.5
    rescaled = ClassMoments.fit(x, z).rescale(scale, shift)
    images = x.double().flatten(1) * scale + shift
    assert_same(rescaled, ClassMoments.fit(images, z))
    torch.testing.assert_close(rescaled.total, torch.cov(images.T, correction=0), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("bytes_first", [False, True])
def test_moments_of_bytes_and_of_floats_merge(bytes_first: bool) -> None:
    x, z = labelled()
    parts = [ClassMoments.fit(x[:250], z[:250]), ClassMoments.fit(x[250:].double(), z[250:])]
    first, second = parts if bytes_first else parts[::-1]
    assert_same(first.merge(second), ClassMoments.fit(x.double(), z))
    one_object = ClassMoments(24, 3).update(x[:250], z[:250]).update(x[250:].float(), z[250:])
    assert_same(one_object, ClassMoments.fit(x.double(), z))
