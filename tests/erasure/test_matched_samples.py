"""Counterparts share the statistics that they promise with the data, and no other."""

import pytest
import torch
from torch import Tensor

from erasure import ClassMoments, order_spectrum
from erasure.datasets.digits import Digits
from erasure.matched_samples import COUNTERPARTS, counterpart
from erasure.splits import splits

CLASSES = 3


def skewed(n: int = 1500, d: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Classes of different means, covariances, marginals and dependences."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.arange(n) % CLASSES
    x = torch.randn(n, d, dtype=torch.float64, generator=generator)
    x = x @ torch.randn(CLASSES, d, d, dtype=torch.float64, generator=generator)[z[:1]].squeeze(0) + z[:, None]
    x[:, 0] = x[:, 0].exp() * (1 + z)
    x[:, 1] = x[:, 1] * (2 - z) + 0.3 * x[:, 2] ** 2
    return x, z


def gap(first: Tensor, second: Tensor) -> float:
    return float((first - second).abs().max() / second.abs().max())


def test_order_1_has_class_means_and_the_pooled_covariance_and_no_class_differs_above() -> None:
    x, z = skewed()
    like = counterpart("order1", x, z)
    ours, theirs = ClassMoments.fit(like.x, like.z), ClassMoments.fit(x, z)
    assert torch.equal(like.z, z)
    assert gap(ours.means, theirs.means) < 1e-10
    assert gap(ours.within, theirs.within) < 1e-10
    (spectrum,) = order_spectrum(like.x - theirs.means[z], like.z, directions=[6])
    assert (spectrum.z_scores[1:].abs() < 3.5).all()
    (of_data,) = order_spectrum(x - theirs.means[z], z, directions=[6])
    assert of_data.z_scores[1] > 10  # negative control


def test_order_2_has_class_means_and_covariances_and_gaussian_classes() -> None:
    x, z = skewed()
    like = counterpart("order2", x, z)
    ours, theirs = ClassMoments.fit(like.x, like.z), ClassMoments.fit(x, z)
    assert gap(ours.means, theirs.means) < 1e-10
    assert gap(ours.covariances, theirs.covariances) < 1e-10
    for j in range(CLASSES):
        of_class = like.x[z == j]
        skewness = ((of_class - of_class.mean(0)) ** 3).mean(0) / of_class.var(0) ** 1.5
        assert skewness.abs().max() < 5 * (6 / len(of_class)) ** 0.5
    assert (((x[z == 0] - x[z == 0].mean(0)) ** 3).mean(0) / x[z == 0].var(0) ** 1.5)[0] > 1  # the data is skewed


def test_classes_of_fewer_examples_than_dimensions_keep_their_moments() -> None:
    x, z = skewed(n=24, d=12)
    like = counterpart("order2", x, z)
    ours, theirs = ClassMoments.fit(like.x, like.z), ClassMoments.fit(x, z)
    assert gap(ours.covariances, theirs.covariances) < 1e-8


def test_independent_keeps_marginals_and_drops_correlations() -> None:
    x, z = skewed()
    like = counterpart("independent", x, z)
    for j in range(CLASSES):
        assert torch.equal(like.x[z == j].sort(0).values, x[z == j].sort(0).values)
        assert (like.x[z == j].T.corrcoef() - torch.eye(6)).abs().max() < 5 / 500**0.5
    assert (x[z == 0].T.corrcoef() - torch.eye(6)).abs().max() > 0.4


@pytest.mark.parametrize("name", ["swap", "quantile"])
def test_moved_examples_have_another_class_and_every_class_gets_as_many(name: str) -> None:
    x, z = skewed()
    like = counterpart(name, x, z)
    assert not (like.z == z).any()
    assert like.z.bincount().tolist() == [500] * CLASSES


def test_swap_has_the_means_and_covariances_of_the_classes_that_it_moves_to() -> None:
    x, z = skewed()
    for j, t in ((0, 1), (1, 2), (0, 2)):
        both = (z == j) | (z == t)
        like = counterpart("swap", x[both], z[both])  # all of j go to t
        moved = like.x[like.z == t]
        assert gap(moved.mean(0), x[z == t].mean(0)) < 1e-9
        assert gap(moved.T.cov(correction=0), x[z == t].T.cov(correction=0)) < 1e-9


def test_swap_of_many_classes_misses_sample_moments_of_the_digits_which_order_2_has() -> None:
    """Each class gets about four images of every other, which differ from that class: see docs/orders.md."""
    digits = Digits(name="digits", flip=False, validation_size=None, test_fraction=0.2, split_seed=0)
    test = splits(digits, digits.load())["test"]
    x, z = test.images.double().flatten(1), test.labels
    theirs = ClassMoments.fit(x, z)

    def off(name: str) -> tuple[float, float]:
        ours = ClassMoments.fit(*counterpart(name, x, z))
        mean = (ours.means - theirs.means).norm(dim=1).max() / theirs.total.trace().sqrt()
        return float(mean), max(
            float((ours.covariance(j) - theirs.covariance(j)).norm() / theirs.covariance(j).norm()) for j in range(10)
        )

    assert max(off("order2")) < 1e-12
    assert off("swap") == pytest.approx((0.16, 0.65), abs=0.005)


def test_quantile_has_the_marginals_of_the_other_class() -> None:
    x, z = skewed(n=999)
    two = z < 2
    like = counterpart("quantile", x[two], z[two])
    for j in range(2):
        assert gap(like.x[like.z == j].sort(0).values, x[z == j].sort(0).values) < 1e-12


@pytest.mark.parametrize("name", COUNTERPARTS)
def test_a_counterpart_is_its_seeds_and_keeps_shape_and_dtype(name: str) -> None:
    x, z = skewed()
    images = x.float().view(-1, 1, 2, 3)
    first, again, other = (counterpart(name, images, z, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.x, other.x)
    assert (first.x.shape, first.x.dtype, first.z.dtype) == (images.shape, torch.float32, torch.int64)


def test_constant_coordinates_stay_constant() -> None:
    x, z = skewed()
    x[:, 3] = 7.0
    for name in COUNTERPARTS:
        assert counterpart(name, x, z).x[:, 3].sub(7.0).abs().max() < 1e-12, name


@pytest.mark.parametrize(
    ("name", "labels", "said"),
    [
        ("order3", [0, 0, 1, 1], "counterpart='order3': choose from order1, order2, independent, swap, quantile"),
        ("order1", [0, 0, 0, 1], "class 1 has one example: a counterpart needs two of each class"),
        ("swap", [0, 0, 0, 0], "counterpart='swap' moves examples to another class, but there is only one"),
    ],
)
def test_what_cannot_be_drawn_is_refused(name: str, labels: list[int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        counterpart(name, torch.randn(4, 2), torch.tensor(labels))


def test_arrays_and_tokens_are_taken_as_examples() -> None:
    x, z = skewed(n=300)
    for name in COUNTERPARTS:
        expected = counterpart(name, x, z)
        for given in ((x.numpy(), z.numpy()), (x.view(60, 5, 6), z.view(60, 5)), (x, z.tolist())):
            drawn = counterpart(name, *given)
            assert torch.equal(drawn.x.view(x.shape), expected.x)
            assert torch.equal(drawn.z.flatten(), expected.z)
            assert drawn.x.shape[:-1] == drawn.z.shape


def test_examples_that_a_counterpart_cannot_be_drawn_in_are_refused() -> None:
    x, z = skewed(n=30)
    for wrong, said in ((x.long(), r"integers \(torch.int64\)"), (x * torch.nan, "values that are not finite")):
        with pytest.raises(ValueError, match=f"x holds {said}"):
            counterpart("independent", wrong, z)
    with pytest.raises(ValueError, match="z has dtype torch.float64: labels are integers"):
        counterpart("order1", x, z.double())


def test_a_linear_model_has_the_same_squared_loss_on_the_data_and_on_what_shares_means_and_covariances() -> None:
    x, z = skewed()
    x = (x - x.mean(0)) / x.std(0)
    targets = torch.nn.functional.one_hot(z).double()
    features = torch.cat([x, torch.ones(len(x), 1)], 1)
    weights = torch.linalg.lstsq(features, targets).solution

    def loss(of: Tensor) -> float:
        return float((torch.cat([of, torch.ones(len(of), 1)], 1) @ weights - targets).square().mean())

    for name in ("order1", "order2"):
        assert loss(counterpart(name, x, z).x) == pytest.approx(loss(x), rel=1e-9)
    assert loss(counterpart("independent", x, z).x) != pytest.approx(loss(x), rel=1e-3)  # other covariances
