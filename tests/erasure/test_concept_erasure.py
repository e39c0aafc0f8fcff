"""What docs/guide/library.md says to users of concept-erasure: where both erase the same, and where they do not."""

import pytest
import torch
from torch import Tensor

from erasure import ClassMoments, LeaceEraser, OracleLeaceEraser, QleaceEraser

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*")
theirs = pytest.importorskip("concept_erasure", reason="concept-erasure is in the group dev")

D, K = 12, 3


def classes(sizes: tuple[int, ...] = (400, 400, 400), seed: int = 0) -> tuple[Tensor, Tensor]:
    """Gaussian classes of unlike means and covariances, float64 [n, D], shuffled."""
    generator = torch.Generator().manual_seed(seed)
    parts = [
        torch.randn(n, D, generator=generator, dtype=torch.float64)
        @ torch.randn(D, D, generator=generator, dtype=torch.float64)
        + torch.randn(D, generator=generator, dtype=torch.float64)
        for n in sizes
    ]
    order = torch.randperm(sum(sizes), generator=generator)
    return torch.cat(parts)[order], torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))[order]


def one_hot(z: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(z, K).double()


def mean_gap(x: Tensor, z: Tensor) -> float:
    m = ClassMoments.fit(x, z)
    return float((m.means - m.mean).norm(dim=1).max())


@pytest.mark.parametrize("sizes", [(400, 400, 400), (100, 300, 800)])
def test_leace_is_the_same_without_shrinkage_batch_by_batch(sizes: tuple[int, ...]) -> None:
    x, z = classes(sizes)
    fitter = theirs.LeaceFitter(D, K, shrinkage=False, dtype=torch.float64)
    moments = ClassMoments(D, K)
    for batch, labels in zip(x.split(100), z.split(100), strict=True):
        fitter.update(batch, one_hot(labels))
        moments.update(batch, labels)
    assert mean_gap(x, z) > 1
    torch.testing.assert_close(LeaceEraser.from_moments(moments)(x), fitter.eraser(x), rtol=0, atol=1e-9)


def test_their_default_shrinks_the_covariance() -> None:
    x, z = classes((20, 20, 20))
    centred = x - x.mean(0)
    whitening = torch.linalg.pinv(torch.linalg.cholesky(centred.T @ centred / len(x)))
    ours, shrunk = (erased - x for erased in (LeaceEraser.fit(x, z)(x), theirs.LeaceEraser.fit(x, one_hot(z))(x)))
    assert mean_gap(x + ours, z) < 1e-10
    assert mean_gap(x + shrunk, z) < 1e-10
    assert (ours @ whitening.T).norm() < (1 - 1e-3) * (
        shrunk @ whitening.T
    ).norm()  # the metric that LEACE minimises in


def test_oracle_leace_is_the_same() -> None:
    x, z = classes((100, 300, 800))
    eraser = theirs.OracleEraser.fit(x, one_hot(z))
    torch.testing.assert_close(OracleLeaceEraser.fit(x, z)(x, z), eraser(x, one_hot(z)), rtol=0, atol=1e-9)


def test_qleace_is_the_same_of_classes_of_equal_size() -> None:
    """To a thousandth of the spread: ours ends once the edit cannot shrink by 2e-6 of the variance, theirs goes on."""
    x, z = classes()
    both = QleaceEraser.fit(x, z)(x, z), theirs.QuadraticEraser.fit(x, z, shrinkage=False)(x, z)
    ours, erased = ((x_erased - x).square().sum(1).mean() for x_erased in both)
    torch.testing.assert_close(ours, erased, rtol=1e-6, atol=0)
    for x_erased in both:
        covariances = ClassMoments.fit(x_erased, z).covariances
        assert (covariances - covariances[0]).abs().max() < 1e-11 * covariances[0].trace()
    assert (both[0] - both[1]).square().mean().sqrt() < 1e-3 * x.std()


def test_qleace_moves_to_the_mean_of_examples_theirs_to_that_of_classes() -> None:
    x, z = classes((100, 300, 800))
    ours, erased = QleaceEraser.fit(x, z)(x, z), theirs.QuadraticEraser.fit(x, z, shrinkage=False)(x, z)
    torch.testing.assert_close(ours.mean(0), x.mean(0), rtol=0, atol=1e-9)
    middle = torch.stack([x[z == j].mean(0) for j in range(K)]).mean(0)
    torch.testing.assert_close(erased.mean(0), middle, rtol=0, atol=1e-9)
    assert (ours - x).square().sum() < (erased - x).square().sum()
