"""The order spectrum against explicit Hermite tensors, planted orders, and chance."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from erasure import LeaceEraser, QleaceEraser
from erasure.certificate import Certificate, certify
from erasure.hermite import hermite_kernels
from erasure.order_spectra import OrderSpectrum, Whitening, kernel_sums, order_spectrum
from tests.erasure.test_hermite import hermite_tensor, normal


def spectrum(x: Tensor, z: Tensor, **options: object) -> OrderSpectrum:
    (only,) = order_spectrum(x, z, **{"directions": [x[0].numel()], **options})  # pyright: ignore[reportArgumentType]
    return only


def test_shares_are_those_of_the_explicit_class_means() -> None:
    x, z = normal(60, 3), torch.arange(60) % 3
    x = x + 0.5 * normal(3, 3, seed=2)[z]
    result = spectrum(x, z, orders=3)
    centred = x - x.mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(x))
    white = centred @ vectors / values.sqrt()
    for p in range(1, 4):
        features = hermite_tensor(white, p)
        by_class = [features[z == j] for j in range(3)]
        means = torch.stack([part.mean(0) for part in by_class])
        # |mean|² of a class, less what its own noise adds to it
        squared = torch.stack([(part.mean(0).square() - part.var(0) / len(part)).sum() for part in by_class])
        weights = torch.eye(3, dtype=torch.float64) / 9
        grand = (means @ means.T / 9).sum() - (weights * (means @ means.T)).sum() + squared.sum() / 9
        share = (squared.mean() - grand) / (features.square().sum(1).mean() - grand)
        assert float(result.shares[p - 1]) == pytest.approx(float(share), rel=1e-10)
        gap = (means - features.mean(0)).square().sum(1).mean() / features.square().sum(1).mean()
        assert float(result.gaps[p - 1]) == pytest.approx(float(gap), rel=1e-10)


def signs(n: int, order: int, r: int) -> tuple[Tensor, Tensor]:
    """Normal coordinates; the product of the first `order` is positive in class 0 and negative in class 1."""
    x, z = normal(n, r), torch.arange(n) % 2
    x[:, 0] = x[:, 0].abs() * x[:, 1:order].sign().prod(1) * (1 - 2 * z)
    return x, z


@pytest.mark.parametrize("order", [3, 4])
def test_a_planted_order_is_found_and_no_lower_one(order: int) -> None:
    result = spectrum(*signs(2000, order, 5))
    assert result.z_scores[order - 1] > 10
    assert (result.shares[: order - 1].abs() < 3 * result.errors[: order - 1]).all()


def test_the_sample_of_many_examples_follows_the_seed() -> None:
    x, z = normal(60, 3), torch.arange(60) % 2
    first, again, other = (spectrum(x, z, most=40, seed=seed) for seed in (0, 0, 1))
    assert first.n == 40
    assert torch.equal(first.shares, again.shares)
    assert not torch.equal(first.shares, other.shares)


NULLS: dict[str, Callable[[int], tuple[Tensor, Tensor]]] = {  # classes that do not differ
    "two classes": lambda seed: (normal(60, 3, seed=seed), torch.arange(60) % 2),
    "unequal classes": lambda seed: (normal(150, 5, seed=seed), (torch.arange(150) % 10 - 5).clamp(min=0)),
    "heavy tails": lambda seed: (
        normal(150, 5, seed=seed) / (0.3 + normal(150, 1, seed=1000 + seed).abs()), torch.arange(150) % 3
    ),
}  # fmt: skip


@pytest.mark.parametrize("design", NULLS)
def test_two_standard_deviations_are_what_chance_seldom_gives(design: str) -> None:
    """One draw in forty, if shares were normal; the jackknife's errors are exceeded twice by one in a thousand."""
    spectra = [spectrum(*NULLS[design](seed)) for seed in range(200)]
    z_scores = torch.stack([s.z_scores for s in spectra])
    assert (z_scores.std(0) - 1).abs().max() < 0.2
    assert (z_scores > 2).double().mean() > 0.015
    assert ((z_scores > 2).double().mean(0) < 0.075).all()
    assert torch.stack([s.shares > 2 * s.errors for s in spectra]).double().mean() < 0.01


@pytest.mark.parametrize(("d", "least", "most"), [(1, 0.4, 0.6), (5, 0.8, 0.97)])
def test_an_order_that_is_not_detected_need_not_be_absent(d: int, least: float, most: float) -> None:
    """A skew of 0.6 in one of two classes, along one direction of d, in 300 examples (docs/orders.md)."""

    def missed(seed: int) -> bool:
        x, z = normal(300, d, seed=seed), torch.arange(300) % 2
        exponential = torch.empty(300, 11).exponential_(generator=torch.Generator().manual_seed(seed))
        skewed = (exponential.sum(1) - 11) / 11**0.5  # skew 2 / sqrt(11)
        x[:, 0] = torch.where(z == 0, skewed, x[:, 0])
        return bool(spectrum(x, z, orders=3).z_scores[2] <= 2)

    assert least < sum(map(missed, range(200))) / 200 < most


@pytest.mark.parametrize("moved", [0.0, 2.0])  # far from white, kernels have a mean
def test_z_scores_are_those_of_all_permutations(moved: float) -> None:
    x, z = normal(12, 2) + moved, torch.tensor([0] * 3 + [1] * 4 + [2] * 5)
    options = {"reference": normal(50, 2, seed=1), "orders": 3}
    result = spectrum(x, z, **options)
    draw = torch.Generator().manual_seed(0)
    orders = (torch.randperm(12, generator=draw) for _ in range(500))
    shares = torch.stack([spectrum(x, z[order], **options).shares for order in orders])
    # whose energies move a little with the labels
    torch.testing.assert_close(shares.std(0), result.shares / result.z_scores, rtol=0.1, atol=0)


def test_z_scores_are_zero_where_all_permutations_have_the_same_share() -> None:
    """All pairs of a simplex's corners are alike: the standard deviation is zero but for rounding, to either side."""
    for n in range(12, 40, 3):
        (result,) = order_spectrum(torch.eye(n, dtype=torch.float64), torch.arange(n) % 3, directions=[n - 1], orders=2)
        assert result.z_scores.abs().max() < 1e-3


def test_coordinates_order_and_tiles_do_not_matter() -> None:
    x, z = signs(600, 3, 4)  # more than a tile
    expected = spectrum(x, z).shares
    rotation = torch.linalg.qr(normal(4, 4, seed=3)).Q
    shuffle = torch.randperm(600, generator=torch.Generator().manual_seed(4))
    for other in (spectrum(x @ rotation + 5, z), spectrum(x[shuffle], z[shuffle])):
        assert torch.allclose(other.shares, expected, rtol=1e-10, atol=1e-12)


def test_erasers_leave_on_the_digits_what_they_do_not_promise_to_erase(digits: tuple[Tensor, Tensor]) -> None:
    x, z = digits[0].flatten(1), digits[1]
    shares = {
        name: spectrum(erased, z, directions=[30]).shares
        for name, erased in (
            ("control", x),
            ("LEACE", LeaceEraser.fit(x, z)(x)),
            ("QLEACE", QleaceEraser.fit(x, z)(x, z)),
        )
    }
    chance = -9 / len(x)  # where moments are equal on the very sample
    assert torch.allclose(100 * shares["control"], torch.tensor([18.5, 6.2, 2.35, 1.19]).double(), atol=0.06)
    assert float(shares["LEACE"][0]) == pytest.approx(chance, rel=0.02)
    assert torch.allclose(shares["QLEACE"][:2], torch.tensor(chance).double(), rtol=0.02)
    assert float(shares["LEACE"][1]) > 0.03
    assert float(shares["QLEACE"][2]) > 5e-4


def test_the_reference_whitens() -> None:
    x, z = signs(300, 3, 4)
    scaled = order_spectrum(x * 3 + 1, z, reference=x * 3 + 1, directions=[4])
    other = order_spectrum(x, z, reference=2 * x, directions=[4])
    assert torch.allclose(scaled[0].shares, spectrum(x, z).shares, rtol=1e-9)
    assert not torch.allclose(other[0].shares, scaled[0].shares, rtol=0.1)


@pytest.mark.parametrize(
    ("x", "z", "options", "said"),
    [
        (normal(6, 2), torch.tensor([0, 0, 0, 0, 1, 1]), {}, r"class sizes \[4, 2\]"),
        (normal(6, 2), torch.zeros(6, dtype=torch.int64), {}, r"class sizes \[6\]"),
        (torch.ones(6, 2), torch.arange(6) % 2, {}, "all examples are alike"),
        (normal(6, 2), torch.arange(6) % 2, {"orders": 0}, "orders=0"),
        (normal(6, 2), torch.arange(6) % 2, {"orders": 2.5}, "orders=2.5: give a whole number"),
        (normal(6, 2), torch.arange(6) % 2, {"most": -1}, "most=-1: must be at least 1"),
        (normal(6, 2), torch.arange(6) % 2, {"most": 0}, "most=0: must be"),
        (normal(6, 2), torch.arange(6) % 2, {"directions": 3}, r"directions=3: give a list of numbers, \[3\]"),
        (normal(6, 2), torch.arange(6) % 2, {"directions": [2.0]}, "directions=2.0: give a whole number"),
        (normal(6, 2), torch.arange(6) % 2, {"directions": []}, r"directions=\[\], orders=4"),
        (normal(6, 2) * torch.nan, torch.arange(6) % 2, {}, "x holds values that are not finite"),
        (normal(6, 2), torch.arange(6) % 2, {"reference": normal(6, 2) * torch.inf}, "values that are not finite"),
        (normal(6, 2), torch.arange(6) % 2, {"reference": normal(6, 3)}, r"reference has shape \(6, 3\): expected"),
    ],
)
def test_what_cannot_be_measured_is_refused(x: Tensor, z: Tensor, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        order_spectrum(x, z, **options)


def test_tokens_arrays_and_one_hot_labels_are_the_same_sample() -> None:
    x, z = signs(300, 3, 4)
    expected = spectrum(x, z)
    tokens, labels = x.view(60, 5, 4), z.view(60, 5)
    one_hot = torch.nn.functional.one_hot(z)
    for sample in ((tokens, labels), (tokens.numpy(), labels.numpy()), (x.numpy(), z.tolist()), (x, one_hot)):
        (ours,) = order_spectrum(*sample, directions=[4], reference=sample[0])
        assert ours.n == 300
        assert torch.equal(ours.shares, expected.shares)


def test_the_error_is_the_jackknifes_to_the_digit() -> None:
    x, z = signs(24, 3, 3)
    shares = [spectrum(x[rest], z[rest], reference=x).shares for rest in (torch.arange(24) != i for i in range(24))]
    variance = 23 / 24 * (torch.stack(shares) - torch.stack(shares).mean(0)).square().sum(0)
    torch.testing.assert_close(spectrum(x, z).errors, variance.sqrt(), rtol=1e-9, atol=0)


@pytest.mark.parametrize("d", [60, 1100])  # beyond 1,024 directions are found by subspace iteration
def test_the_variance_held_is_a_share_of_that_of_all_directions(d: int) -> None:
    x, z = normal(300, d) * torch.logspace(1, -1, d), torch.arange(300) % 2
    values = torch.linalg.svdvals(x - x.mean(0)).square()
    for r in (2, 5):
        (result,) = order_spectrum(x, z, directions=[r])
        assert result.variance == pytest.approx(float(values[:r].sum() / values.sum()), rel=1e-7)


def test_directions_that_rounding_could_make_are_left_out_in_the_dtype_of_the_examples() -> None:
    x = torch.cat([normal(200, 2), 1e-5 * normal(200, 1, seed=1)], 1)
    for far, ranks in ((x, (3, 3)), (x + 1000, (3, 2)), (x + torch.tensor([1000, 1000, 0]), (3, 3))):
        assert (Whitening.fit(far, 3).basis.shape[1], Whitening.fit(far.float(), 3).basis.shape[1]) == ranks
    with pytest.raises(ValueError, match="all examples are alike"):
        Whitening.fit(torch.full((1000, 2), 0.1, dtype=torch.float64), 2)  # whose mean is not 0.1 in float64


@pytest.mark.parametrize("far", [1e7, 1e8, torch.tensor([0, 0, 0, 1e8])])
def test_examples_far_from_zero_have_the_orders_of_examples_near_it(far: float | Tensor) -> None:
    x, z = signs(300, 3, 4)
    if isinstance(far, Tensor):
        x[:, 3] *= 1000
    expected, found = spectrum(x, z), spectrum(x + far, z)
    assert found.directions == expected.directions == 4
    torch.testing.assert_close(found.shares, expected.shares, rtol=0, atol=1e-6)
    certificate = certify(x + far, x + far, z)
    assert isinstance(certificate, Certificate)
    assert certificate.order_directions == 4
    assert certificate.order_shares == pytest.approx(expected.shares.tolist(), abs=1e-6)


def test_sums_over_pairs_leave_out_the_diagonal_of_every_tile() -> None:
    x, z = normal(530, 3), torch.arange(530) % 3  # two tiles
    for sums, kernel in zip(kernel_sums(x, z, 4), hermite_kernels(x, x, 4), strict=True):
        kernel = kernel.clone()
        torch.testing.assert_close(sums.diagonal, kernel.diagonal(), rtol=1e-10, atol=1e-10)
        kernel.fill_diagonal_(0)
        hot = torch.nn.functional.one_hot(z).double()
        torch.testing.assert_close(sums.rows, kernel @ hot, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(sums.squares, kernel.square().sum(), rtol=1e-10, atol=1e-10)


def test_spectra_come_in_the_order_of_their_directions_one_for_each() -> None:
    x, z = normal(60, 4) * torch.arange(1, 5), torch.arange(60) % 3
    x = x + 0.5 * normal(3, 4, seed=2)[z]
    several = order_spectrum(x, z, directions=[3, 1, 100, 3], orders=2)
    assert [one.directions for one in several] == [3, 1, 4, 3]
    for one, r in zip(several, (3, 1, 4, 3), strict=True):
        alone = spectrum(x, z, directions=[r], orders=2)
        for name in ("shares", "errors", "z_scores", "gaps"):
            torch.testing.assert_close(getattr(one, name), getattr(alone, name), rtol=0, atol=0)
