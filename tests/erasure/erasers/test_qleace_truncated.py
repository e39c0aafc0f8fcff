"""The reproduction of the paper's QLEACE: what concept-erasure computes, and the subspace that it leaves each class."""

import pytest
import torch
from torch import Tensor

from erasure import QleaceEraser, TruncatedQleaceEraser


def classes(per_class: int, d: int, variances: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Three classes with the same variances along directions of their own."""
    source = torch.Generator().manual_seed(seed)
    parts = []
    for _ in range(3):
        turn, _ = torch.linalg.qr(torch.randn(d, d, generator=source))
        parts.append(
            torch.randn(per_class, d, generator=source) * variances.sqrt() @ turn + torch.randn(d, generator=source)
        )
    return torch.cat(parts), torch.arange(3).repeat_interleave(per_class)


@pytest.mark.parametrize("shrinkage", [True, False])
def test_it_computes_what_concept_erasure_computes(shrinkage: bool) -> None:
    x, z = classes(400, 12, torch.logspace(0, -2, 12))  # nothing near the threshold
    quadratic = pytest.importorskip("concept_erasure.quadratic", reason="concept-erasure is in the group dev")
    theirs = quadratic.QuadraticFitter.fit(x, z, shrinkage=shrinkage).eraser
    ours = TruncatedQleaceEraser.fit(x, z, shrinkage=shrinkage)
    torch.testing.assert_close(ours(x, z), theirs(x, z), rtol=0, atol=2e-3)
    torch.testing.assert_close(ours.maps.mT.float(), theirs.ot_maps, rtol=0, atol=2e-3)


def test_every_class_keeps_a_subspace_of_its_own_that_gives_the_label_away() -> None:
    variances = torch.cat([torch.ones(4), torch.full((36,), 1e-6)])  # float32 keeps λ > λ_max · 40 · 1.2e-7 = 4.8e-6
    x, z = classes(400, 40, variances)
    eraser = TruncatedQleaceEraser.fit(x, z, shrinkage=False)
    assert eraser.ranks == (4, 4, 4)
    bases = [torch.linalg.svd(a)[2][:4] for a in eraser.maps]  # each map's range
    held_out, labels = classes(50, 40, variances)
    erased = eraser(held_out, labels).double() - eraser.mean
    outside = torch.stack([(erased - erased @ basis.T @ basis).norm(dim=1) for basis in bases], 1)
    assert (outside.argmin(1) == labels).all()
    exact = QleaceEraser.fit(x.double(), z)
    assert all(torch.linalg.matrix_rank(a) == 40 for a in exact.maps)


def test_class_means_are_equal_and_covariances_are_not() -> None:
    x, z = classes(400, 40, torch.cat([torch.ones(4), torch.full((36,), 1e-6)]))
    erased = TruncatedQleaceEraser.fit(x, z, shrinkage=False)(x, z)
    means = torch.stack([erased[z == j].mean(0) for j in range(3)])
    covariances = torch.stack([erased[z == j].T.cov() for j in range(3)])
    assert (means - means.mean(0)).norm(dim=1).max() < 1e-5
    assert (covariances - covariances.mean(0)).norm(dim=(1, 2)).max() > 0.5 * covariances.mean(0).norm()


def test_a_class_of_one_example_is_refused() -> None:
    with pytest.raises(ValueError, match="class 1 has 1"):
        TruncatedQleaceEraser.fit(torch.randn(5, 3), torch.tensor([0, 0, 0, 0, 1]))
