"""The reproduction of the paper's QLEACE: what concept-erasure computes, and the subspace that it leaves each class."""

from typing import Any

import pytest
import torch
from torch import Tensor

from erasure import QleaceEraser, TruncatedQleaceEraser
from erasure.erasers.qleace import ClassMapsEraser


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


EXACT: dict[str, Any] = {"precision": "float64", "shrinkage": False, "truncation": "float64"}
LEADING = 4  # of 40 directions; float32 keeps λ > λ_max · 40 · 1.2e-7 = 4.8e-6
VARIANCES = torch.cat([torch.ones(LEADING), torch.full((36,), 1e-6)])


def covariances_after(eraser: ClassMapsEraser, x: Tensor, z: Tensor) -> Tensor:
    erased = eraser(x, z)
    means = torch.stack([erased[z == j].mean(0) for j in range(3)])
    assert (means - means.mean(0)).norm(dim=1).max() < 1e-5  # whatever the options
    return torch.stack([erased[z == j].T.cov(correction=0) for j in range(3)])


@pytest.mark.parametrize(
    "changed", [{}, {"precision": "float32"}, {"shrinkage": True}, {"truncation": "float32"}], ids=str
)
def test_class_covariances_are_equal_with_none_of_the_three_and_not_with_any(changed: dict[str, Any]) -> None:
    x, z = classes(400, 40, VARIANCES)
    x = x.double()
    eraser = TruncatedQleaceEraser.fit(x, z, **EXACT | changed)
    covariances = covariances_after(eraser, x, z)
    gap = (covariances - covariances.mean(0)).norm(dim=(1, 2)).max() / covariances.mean(0).norm()
    if changed:
        assert gap > 0.1
    else:
        assert gap < 1e-8
        assert (eraser(x, z) - QleaceEraser.fit(x, z, tolerance=1e-13)(x, z)).norm() < 1e-4 * x.norm()


@pytest.mark.parametrize("options", [{"shrinkage": False}, EXACT | {"truncation": "float32"}], ids=str)
def test_truncation_leaves_each_class_a_subspace_that_gives_its_label_away(options: dict[str, Any]) -> None:
    x, z = classes(400, 40, VARIANCES)
    eraser = TruncatedQleaceEraser.fit(x, z, **options)
    assert eraser.ranks == (LEADING,) * 3
    bases = [torch.linalg.svd(a)[2][:LEADING] for a in eraser.maps]  # each map's range
    held_out, labels = classes(50, 40, VARIANCES)
    erased = eraser(held_out, labels).double() - eraser.mean
    outside = torch.stack([(erased - erased @ basis.T @ basis).norm(dim=1) for basis in bases], 1)
    assert (outside.argmin(1) == labels).all()


@pytest.mark.parametrize("changed", [{}, {"shrinkage": True}], ids=str)
def test_without_truncation_every_class_keeps_all_directions(changed: dict[str, Any]) -> None:
    x, z = classes(400, 40, VARIANCES)
    eraser = TruncatedQleaceEraser.fit(x, z, **EXACT | changed)
    assert eraser.ranks == (40,) * 3
    assert all(torch.linalg.matrix_rank(c) == 40 for c in covariances_after(eraser, x.double(), z))


@pytest.mark.parametrize("option", ["precision", "truncation"])
def test_another_dtype_is_refused(option: str) -> None:
    chosen: dict[str, Any] = {option: "float16"}
    with pytest.raises(ValueError, match=f"{option}='float16': choose one of float64, float32, bfloat16"):
        TruncatedQleaceEraser.fit(torch.randn(6, 3), torch.arange(6) % 2, **chosen)


def test_a_class_of_one_example_is_refused() -> None:
    with pytest.raises(ValueError, match="class 1 has 1"):
        TruncatedQleaceEraser.fit(torch.randn(5, 3), torch.tensor([0, 0, 0, 0, 1]))


@pytest.mark.parametrize("scale", [1e10, 1e-25, torch.logspace(-5, 5, 4).double()])
def test_data_beyond_the_range_of_the_precision_name_remedies_that_work(scale: Any) -> None:
    x, z = torch.randn(90, 4, generator=torch.Generator().manual_seed(0)).double() * scale, torch.arange(90) % 3
    with pytest.raises(
        ValueError, match="leave the range of torch.float32: divide .*, or fit with precision='float64'"
    ):
        TruncatedQleaceEraser.fit(x, z)
    for one, precision in ((x / x.std(0), "float32"), (x, "float64")):
        erased = TruncatedQleaceEraser.fit(one, z, precision=precision)(one, z) / one.std(0)
        means = torch.stack([erased[z == j].mean(0) for j in range(3)])
        torch.testing.assert_close(means, means[:1].expand_as(means), rtol=0, atol=1e-3)
        assert erased.std(0).min() > 0.5
