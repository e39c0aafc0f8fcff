"""QLEACE's theorem (Quirke & Belrose 2025, 2.6): equal class means and covariances, by the smallest edit that can."""

import itertools

import pytest
import torch
from torch import Tensor

from erasure import ClassMoments, LeaceEraser, QleaceEraser
from erasure.certificate import certify
from erasure.datasets.digits import Digits
from erasure.splits import splits
from tests.conftest import gaps


def mixture(
    k: int, d: int, *, condition: float = 100.0, counts: list[int] | None = None, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Examples whose class covariances have exactly this condition number, each in a basis of its own."""
    generator = torch.Generator().manual_seed(seed)
    spectrum = torch.logspace(0, -torch.tensor(condition).log10().item(), d, dtype=torch.float64)
    classes = []
    for n in counts or [2 * d + 5] * k:
        basis = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
        white = torch.randn(n, d, generator=generator, dtype=torch.float64)
        white = torch.linalg.qr(white - white.mean(0)).Q * n**0.5
        mean = torch.randn(d, generator=generator, dtype=torch.float64)
        classes.append(mean + (white * spectrum.sqrt()) @ basis.T)
    z = torch.arange(k).repeat_interleave(torch.tensor([len(c) for c in classes]))
    return torch.cat(classes), z


def root(sigma: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(sigma)
    return (vectors * values.clamp(min=0).sqrt()[..., None, :]) @ vectors.mT


def slow_barycenter(covariances: Tensor, weights: Tensor, rounds: int = 60) -> Tensor:
    """S <- S^-½ (Σ λ_j (S^½ Σ_j S^½)^½)² S^-½ from the average covariance, by eigendecompositions."""
    s = torch.einsum("k,kij->ij", weights, covariances)
    for _ in range(rounds):
        half = root(s)
        inverse = torch.linalg.inv(half)
        mixed = torch.einsum("k,kij->ij", weights, root(half @ covariances @ half))
        s = inverse @ mixed @ mixed @ inverse
    return (s + s.T) / 2


def least_edit(moments: ClassMoments) -> float:
    """Lemma 2.5: Σ λ_j (‖m_j - m̄‖² + W₂²(Σ_j, S)), relative to the variance tr Σ_xx."""
    covariances, weights = moments.covariances, moments.weights
    s = slow_barycenter(covariances, weights)
    half = root(s)
    traces = covariances.diagonal(dim1=1, dim2=2).sum(1) + s.trace()
    distances = traces - 2 * root(half @ covariances @ half).diagonal(dim1=1, dim2=2).sum(1)
    shifts = (moments.means - moments.mean).square().sum(1)
    return float((weights * (shifts + distances)).sum() / moments.total.trace())


def edit_size(x: Tensor, erased: Tensor) -> float:
    return float((erased - x).square().sum() / (x - x.mean(0)).square().sum())


def test_class_moments_of_the_digits_are_equal(digits_source: Digits) -> None:
    train = splits(digits_source, digits_source.load())["train"]
    x, z = train.images.double() / 16, train.labels  # class ranks differ, none is 64
    erased = QleaceEraser.fit(x, z)(x, z)
    assert min(gaps(x, z, x)) > 0.3
    mean_gap, covariance_gap = gaps(erased, z, x)
    assert mean_gap < 1e-14
    assert covariance_gap < 1e-10
    certificate = certify(x, erased, z, ClassMoments.fit(x, z))
    assert certificate.mean_gap < 1e-14
    assert certificate.covariance_gap < 1e-10
    assert certificate.edit_size == pytest.approx(edit_size(x, erased))


@pytest.mark.parametrize("condition", [1.0, 1e4, 1e8])
@pytest.mark.parametrize("d", [2, 20])
def test_class_moments_are_equal_however_ill_conditioned(condition: float, d: int) -> None:
    x, z = mixture(4, d, condition=condition)
    erased = QleaceEraser.fit(x, z)(x, z)
    mean_gap, covariance_gap = gaps(erased, z, x)
    assert mean_gap < 1e-13
    assert covariance_gap < 1e-12  # asked for: 1e-10; seen: 5e-14


@pytest.mark.parametrize(("k", "counts"), [(2, [30, 90]), (5, None), (3, [200, 30, 40])])
@pytest.mark.parametrize("condition", [10.0, 1e4])
def test_the_edit_is_the_smallest_possible(k: int, counts: list[int] | None, condition: float) -> None:
    x, z = mixture(k, 8, condition=condition, counts=counts, seed=k)
    moments = ClassMoments.fit(x, z)
    eraser = QleaceEraser.from_moments(moments)
    above = edit_size(x, eraser(x, z)) - least_edit(moments)
    # below the bound only by the rounding of its traces, roots of eigenvalues as small as 1 / condition²
    assert -1e-12 < above < 1e-8
    assert eraser.excess <= 1e-8
    rough = QleaceEraser.from_moments(moments, tolerance=1e-2)  # fewer rounds: a larger edit, equality all the same
    assert edit_size(x, rough(x, z)) - least_edit(moments) >= above
    assert gaps(rough(x, z), z, x)[1] < 1e-12


def test_of_limited_rank_the_excess_is_that_over_a_least_edit_nearby() -> None:
    """Classes of rank one are lines, R a mean of ± their directions: the best signs are found by trying all."""
    u = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x, z = torch.cat([u, -u]), torch.arange(4).repeat(2)
    eraser = QleaceEraser.fit(x, z)
    costs = [
        float(
            (torch.tensor(signs).double()[:, None] * u).sub((torch.tensor(signs).double() @ u) / 4).square().sum()
            / u.square().sum()
        )
        for signs in itertools.product([1.0, -1.0], repeat=4)
    ]
    above = edit_size(x, eraser(x, z)) - min(costs)
    assert eraser.excess < 1e-8
    assert 0.01 < above < 0.03
    assert any(abs(edit_size(x, eraser(x, z)) - cost) < 1e-12 for cost in costs)  # a local least


def test_the_edit_is_what_moving_means_and_transporting_covariances_costs_and_other_targets_cost_more() -> None:
    x, z = mixture(3, 6, counts=[60, 25, 35])
    moments = ClassMoments.fit(x, z)
    least = edit_size(x, QleaceEraser.from_moments(moments)(x, z))
    weights = moments.weights
    for target in (moments.within, slow_barycenter(moments.covariances, torch.full_like(weights, 1 / 3))):
        erased = torch.empty_like(x)
        for j in range(3):
            half = root(moments.covariance(j))
            inverse = torch.linalg.inv(half)
            a = inverse @ root(half @ target @ half) @ inverse
            erased[z == j] = (x[z == j] - moments.means[j]) @ a + moments.mean
        assert gaps(erased, z, x)[1] < 1e-10  # erases as well
        assert edit_size(x, erased) > least + 1e-4


def test_maps_are_symmetric_and_positive_where_classes_are_of_full_rank() -> None:
    x, z = mixture(4, 10)
    maps = QleaceEraser.fit(x, z, tolerance=1e-14).maps
    # rotations are found in single precision; the covariances do not depend on it, the edit to second order
    torch.testing.assert_close(maps, maps.mT, rtol=0, atol=1e-5)
    assert (torch.linalg.eigvalsh(maps) > 0).all()


@pytest.mark.parametrize("n", [2, 12, 25])
def test_fewer_examples_than_pixels(n: int) -> None:
    generator = torch.Generator().manual_seed(n)
    z = torch.arange(4).repeat_interleave(torch.tensor([n, n + 1, n + 5, 3 * n]))
    x = torch.rand(len(z), 30, generator=generator, dtype=torch.float64) + 0.1 * z[:, None]
    eraser = QleaceEraser.fit(x, z, tolerance=1e-5)  # equality does not depend on it
    erased = eraser(x, z)
    mean_gap, covariance_gap = gaps(erased, z, x)
    assert mean_gap < 1e-13
    assert covariance_gap < 1e-12
    assert torch.linalg.matrix_rank(erased - erased.mean(0)) == n - 1  # no less than the smallest class allows
    assert edit_size(x, erased) < 1  # less than setting all to the mean


def test_constant_pixels_stay_constant_in_all_classes() -> None:
    x, z = mixture(3, 6)
    x = torch.cat([x, torch.full((len(x), 2), 0.3, dtype=torch.float64)], 1)
    x[z == 1, 0] = 0.7  # constant in one class only
    erased = QleaceEraser.fit(x, z)(x, z)
    assert gaps(erased, z, x)[0] < 1e-13
    assert gaps(erased, z, x)[1] < 1e-12
    torch.testing.assert_close(erased[:, 6:], x[:, 6:], rtol=0, atol=1e-15)


def test_leace_leaves_the_covariances_that_qleace_makes_equal() -> None:
    experiment = pytest.importorskip("tests.models.test_equal_moments_stop_polynomials")
    x, z = mixture(4, 6)
    by_leace, by_qleace = LeaceEraser.fit(x, z)(x), QleaceEraser.fit(x, z)(x, z)
    assert gaps(by_leace, z, x)[0] < 1e-13
    assert gaps(by_leace, z, x)[1] > 0.1
    model = experiment.PolynomialClassifier((1, 1, 6), 4, degree=2, sketch=6)
    assert experiment.lowest_loss(model, by_leace.view(-1, 1, 1, 6), z) < experiment.entropy(z) - 0.1
    assert experiment.lowest_loss(model, by_qleace.view(-1, 1, 1, 6), z) == pytest.approx(
        experiment.entropy(z), abs=1e-9
    )


def test_equal_covariances_are_only_shifted() -> None:
    x, _ = mixture(2, 5)
    x, z = torch.cat([x, x + 1, x - 3]), torch.arange(3).repeat_interleave(len(x))
    erased = QleaceEraser.fit(x, z)(x, z)
    # factors are turned in single precision: its rounding changes the map, though not the covariance
    torch.testing.assert_close(erased, (x - torch.tensor([0.0, 1.0, -3.0])[z, None]) - 2 / 3, rtol=0, atol=1e-6)


def test_a_search_that_ends_above_its_tolerance_says_so(caplog: pytest.LogCaptureFixture) -> None:
    x, z = mixture(3, 6)
    QleaceEraser.fit(x, z)
    assert not caplog.messages
    QleaceEraser.fit(x, z, tolerance=0.0)  # never reached
    assert any("its edit may be" in message and "larger than need be" in message for message in caplog.messages)


def test_a_class_without_variance_is_refused() -> None:
    x, z = mixture(3, 4)
    alike = x.clone()
    alike[z == 1] = alike[z == 1][0]
    with pytest.raises(ValueError, match="class 1 has no variance, all its examples are alike"):
        QleaceEraser.fit(alike, z)
