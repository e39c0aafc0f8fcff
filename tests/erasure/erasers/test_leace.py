"""LEACE's theorem, with a negative control: a probe learns before and cannot after."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from erasure import ClassMoments, ConceptMoments, LeaceEraser, SplinceEraser
from erasure.hidden_states import fit_layers
from tests.conftest import gaps


def entropy_bits(z: Tensor) -> float:
    shares = z.bincount().double() / len(z)
    return float(-(shares * shares.log2()).sum())


def linear_probe_bits(x: Tensor, z: Tensor) -> float:
    """Lowest training loss that logistic regression reaches, in bits: full batch, L-BFGS to convergence."""
    x = x.flatten(1).double()
    x = (x - x.mean(0)) / x.std()
    weight = torch.zeros(x.shape[1], int(z.max()) + 1, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(weight.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=300, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(x @ weight + bias, z)
        value.backward()
        return value

    optimizer.step(loss)
    return loss().item() / math.log(2)


def test_a_linear_probe_cannot_beat_the_constant_predictor_after_and_does_before(digits) -> None:
    x, z = digits
    erased = LeaceEraser.fit(x, z)(x)
    assert linear_probe_bits(x, z) < 0.2
    assert linear_probe_bits(erased, z) == pytest.approx(entropy_bits(z), abs=1e-9)
    # the information is erased on average only: half of the data, whose class means differ again, betrays it
    assert linear_probe_bits(erased[:900], z[:900]) < entropy_bits(z[:900]) - 0.1


def test_class_means_are_equal_the_global_mean_is_kept_and_erasing_twice_changes_nothing(digits) -> None:
    x, z = digits  # three pixels are constant: the covariance is singular
    keep = (z != 3) | (torch.arange(len(z)) % 7 == 0)  # imbalanced
    x, z = x[keep], z[keep]
    eraser = LeaceEraser.fit(x, z)
    assert (eraser.left.shape, eraser.right.shape) == ((64, 9), (9, 64))
    erased = eraser(x)
    torch.testing.assert_close(erased.mean(0), x.mean(0), rtol=0, atol=1e-14)
    torch.testing.assert_close(eraser(erased), erased, rtol=0, atol=1e-13)
    assert gaps(x, z, x)[0] > 0.5
    assert gaps(erased, z, x)[0] < 1e-14


@given(seed=st.integers(0, 10_000))
def test_any_other_projection_that_erases_edits_more(digits, seed: int) -> None:
    """Theorem 4.3: the edit is minimal in every norm at once, among maps x - P (x - m̄) that erase."""
    x, z = digits
    x = x.flatten(1)[:, x.flatten(1).std(0) > 0]
    eraser = LeaceEraser.fit(x, z)
    generator = torch.Generator().manual_seed(seed)
    norm = torch.randn(x.shape[1], x.shape[1], dtype=torch.float64, generator=generator)
    moments = ClassMoments.fit(x, z)
    # any P = S (R S)⁺ R with S spanning the class means and R arbitrary satisfies P S = S
    shifts = (moments.means - moments.mean)[:-1].T
    rows = torch.randn(9, x.shape[1], dtype=torch.float64, generator=generator)
    rows = eraser.right + torch.rand(1, generator=generator).item() * rows  # also near the optimum
    other = shifts @ torch.linalg.solve(rows @ shifts, rows)
    erased = x - (x - moments.mean) @ other.T
    assert gaps(erased, z, x)[0] < 1e-9
    least = ((eraser(x) - x) @ norm).square().sum()
    assert least <= ((erased - x) @ norm).square().sum() * (1 + 1e-12)


@given(scale=st.sampled_from([1e-9, 1e-4, 1e6]), seed=st.integers(0, 100))
def test_low_contrast_data_is_erased_as_well(digits, scale: float, seed: int) -> None:
    """An absolute tolerance would leave class information in data of small contrast, or in dim pixels."""
    x, z = digits
    pixel = torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    dim = x * torch.where(pixel < 0.3, scale, 1.0)
    erased = LeaceEraser.fit(dim, z)(dim)
    moments = ClassMoments.fit(erased, z)
    worst = (moments.means - moments.mean).abs().amax(0)
    std = ClassMoments.fit(dim, z).total.diagonal().sqrt()
    assert (worst <= 1e-12 * std).all()  # pixel by pixel, not only in total


@pytest.mark.parametrize("n", [25, 60, 400])
def test_fewer_examples_than_pixels_and_duplicated_pixels(n: int) -> None:
    generator = torch.Generator().manual_seed(n)
    z = torch.arange(n) % 5
    x = torch.randn(n, 40, generator=generator, dtype=torch.float64) + torch.nn.functional.one_hot(z, 40)
    x = torch.cat([x, x[:, :10], torch.full((n, 2), 0.3)], 1)
    eraser = LeaceEraser.fit(x, z)
    erased = eraser(x)
    assert gaps(erased, z, x)[0] < 1e-12
    torch.testing.assert_close(erased[:, 40:50], erased[:, :10], rtol=0, atol=1e-10)
    torch.testing.assert_close(erased[:, 50:], x[:, 50:], rtol=0, atol=0)


def standardised_r2(x: Tensor, z: Tensor) -> float:
    """Share of the variance of one-hot labels that least squares explains, by singular vectors of standardised data."""
    x = (x - x.mean(0)) / x.std(0)
    labels = torch.nn.functional.one_hot(z).double()
    labels = labels - labels.mean(0)
    u, sizes, _ = torch.linalg.svd(x, full_matrices=False)
    return float((u[:, sizes > 1e-14 * sizes[0]].T @ labels).square().sum() / labels.square().sum())


@pytest.mark.parametrize("spread", [3e-7, 1e-8, 1e-10])
@pytest.mark.parametrize("leak", [0.0, 1.0])
def test_directions_too_thin_for_the_covariance_are_erased_too(spread: float, leak: float) -> None:
    """A column that is another but for noise: its differing direction was passed through with all that it tells."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randint(3, (1000,), generator=generator)
    x = torch.randn(1000, 20, generator=generator, dtype=torch.float64) + 0.5 * torch.nn.functional.one_hot(z, 20)
    noise = torch.randn(1000, generator=generator, dtype=torch.float64) + leak * z
    x = torch.cat([x, x[:, :1] + spread * noise[:, None]], 1)
    eraser = LeaceEraser.fit(x, z)
    erased = eraser(x)
    assert standardised_r2(x, z) > 0.1
    assert standardised_r2(erased, z) < 1e-12
    assert eraser.removed == 3  # one more than the two of class means
    torch.testing.assert_close(eraser(erased), erased, rtol=0, atol=1e-13)


def test_classes_with_the_same_mean_cost_no_direction() -> None:
    x = torch.randn(50, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = torch.cat([x, x, x + 1])  # classes 0 and 1 are copies
    z = torch.arange(3).repeat_interleave(50)
    assert LeaceEraser.fit(x, z).left.shape == (6, 1)
    same = LeaceEraser.fit(x[:100], z[:100])
    torch.testing.assert_close(same(x), x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("d", [16, 64])  # with 16 coordinates rounding took all that was left
def test_layers_after_an_erased_one_are_left_as_they_are(dtype: torch.dtype, d: int) -> None:
    torch.manual_seed(0)
    z = torch.arange(1000) % 10
    x = (torch.randn(1000, d) + torch.randn(10, d)[z]).to(dtype)
    net = torch.nn.Sequential(torch.nn.LayerNorm(d), torch.nn.Linear(d, d), torch.nn.Linear(d, 16)).to(dtype).eval()
    first, *later = fit_layers(net, [(x, z)], ["0", "1", "2"], num_classes=10).values()
    normed = net[0](x).detach()
    states = first(normed)
    assert (states - normed).abs().max() > 0.1
    for module, eraser in zip(net[1:], later, strict=True):
        states = module(states).detach()
        tolerance = 2 if dtype == torch.bfloat16 else 50  # roundings, which have left other directions constant
        torch.testing.assert_close(eraser(states), states, rtol=0, atol=tolerance * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_erased_data_and_classes_that_are_copies_are_left_as_they_are(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.arange(2000) % 2
    x = torch.randn(2000, 32, dtype=torch.float64, generator=generator)
    order = torch.randperm(2000, generator=generator)
    copies = torch.cat([x[:1000], x[:1000]])[order], (torch.arange(2000) // 1000)[order]
    x += z[:, None] * torch.rand(32, dtype=torch.float64, generator=generator)
    erased = LeaceEraser.fit(x.to(dtype), z)(x.to(dtype))
    assert (erased - x).abs().max() > 0.1
    for same, label in ((erased, z), (copies[0].to(dtype), copies[1])):
        tolerance = 50 * torch.finfo(dtype).eps
        torch.testing.assert_close(LeaceEraser.fit(same, label)(same), same, rtol=0, atol=tolerance)
        moments = ConceptMoments.fit(same, {"z": label, "y": torch.randn(2000, generator=generator)})
        edited = SplinceEraser.from_moments(moments, keep=["y"])(same)
        torch.testing.assert_close(edited, same, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("dtype", "gap"), [(torch.float32, 1e-3), (torch.float64, 1e-3), (torch.float64, 1e-7)])
def test_small_gaps_above_rounding_are_erased(dtype: torch.dtype, gap: float) -> None:
    same = torch.randn(1000, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = torch.cat([same, same + gap]).to(dtype)
    z = torch.arange(2).repeat_interleave(1000)

    def between(x: Tensor) -> float:
        return float((x[:1000].double() - x[1000:].double()).mean(0).abs().max())

    assert between(x) > 0.9 * gap
    assert between(LeaceEraser.fit(x, z)(x)) < 2 * torch.finfo(dtype).eps
    moments = ConceptMoments.fit(x, {"z": z, "y": x[:, 0]})
    assert between(SplinceEraser.from_moments(moments, keep=["y"])(x)) < 100 * torch.finfo(dtype).eps  # oblique
