"""SPLINCE: z is erased linearly, and examples covary with y as before."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from erasure import ClassMoments, ConceptMoments, Eraser, LeaceEraser, SplinceEraser
from tests.erasure.test_concepts_without_classes import linear_r2

D, N = 8, 3000


def draw(correlation: float = 0.6, rank: int = D) -> tuple[Tensor, Tensor, Tensor]:
    """Return examples [N, D] that hold two correlated labels z and y, of covariance of some rank."""
    generator = torch.Generator().manual_seed(1)
    z = torch.randint(3, (N,), generator=generator)
    y = torch.where(
        torch.rand(N, generator=generator) < correlation, z % 2, torch.randint(2, (N,), generator=generator)
    )
    hidden = torch.randn(N, rank, generator=generator, dtype=torch.float64)
    hidden[:, 0] += z
    hidden[:, 1] += z == 1
    hidden[:, 2] += 2 * y
    hidden[:, 3] += y + z
    return hidden @ torch.randn(rank, D, generator=generator, dtype=torch.float64), z, y


def covariance(x: Tensor, y: Tensor) -> Tensor:
    y = y.double().reshape(len(y), -1)
    return (x - x.mean(0)).T @ (y - y.mean(0)) / len(x)


@pytest.mark.parametrize("rank", [D, 5])
def test_the_covariance_with_y_is_kept_and_z_is_gone(rank: int, tmp_path: Path) -> None:
    x, z, y = draw(rank=rank)
    eraser = SplinceEraser.fit(x, z, keep=y)
    erased = eraser(x)
    size = covariance(x, y).abs().max()
    assert (covariance(erased, y) - covariance(x, y)).abs().max() < 1e-12 * size
    assert linear_r2(x, z) > 0.2
    assert linear_r2(erased, z) <= 1e-12
    assert eraser.removed == 2
    assert 0 < eraser.cosine < 1
    leace = LeaceEraser.fit(x, z)(x)
    assert (covariance(leace, y) - covariance(x, y)).abs().max() > 0.05 * size, "LEACE does not keep it"
    eraser.save(tmp_path / "eraser.safetensors")
    torch.testing.assert_close(Eraser.load(tmp_path / "eraser.safetensors")(x), erased, rtol=0, atol=1e-12)


def test_no_other_affine_map_that_keeps_both_promises_edits_less() -> None:
    x, z, y = draw()
    eraser = SplinceEraser.fit(x, z, keep=y)
    edit = eraser(x) - x
    crosses = torch.cat([covariance(x, torch.nn.functional.one_hot(z)), covariance(x, y)], 1)
    free = torch.linalg.svd(crosses).U[:, 3:]  # three directions are bound: two of z, one of y
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        step = 1e-3 * torch.randn(D, free.shape[1], generator=generator, dtype=torch.float64) @ free.T
        other = edit + (x - x.mean(0)) @ step.T
        assert covariance(x + other, y).allclose(covariance(x, y))
        assert other.square().sum() > edit.square().sum()


def test_without_y_it_is_leace() -> None:
    x, z, _ = draw()
    expected = LeaceEraser.fit(x, z)(x)
    assert torch.equal(SplinceEraser.fit(x, z)(x), expected)
    assert torch.equal(SplinceEraser.from_moments(ClassMoments.fit(x, z, pooled=True))(x), expected)


def test_y_unrelated_to_the_directions_of_z_changes_nothing() -> None:
    x, z, _ = draw()
    y = torch.randn(N, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    erased = LeaceEraser.fit(x, z)(x)
    y = y - (erased - erased.mean(0)) @ torch.linalg.lstsq(erased - erased.mean(0), y[:, None]).solution[:, 0]
    y += erased[:, 0]  # covaries with x only through what LEACE leaves
    y -= LeaceEraser.fit(x, z).mean[0]
    z_columns = torch.nn.functional.one_hot(z).double()
    y -= z_columns @ torch.linalg.lstsq(z_columns, y[:, None]).solution[:, 0]
    eraser = SplinceEraser.fit(x, z, keep=y)
    assert (covariance(eraser(x), y) - covariance(x, y)).abs().max() < 1e-12


def test_batches_of_several_concepts_by_name() -> None:
    x, z, y = draw()
    real = torch.randn(N, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + x[:, :2]
    moments = ConceptMoments(D, {"topic": 3, "author": 2, "task": 2})
    for rows in torch.arange(N).split(700):
        moments.update(x[rows], {"topic": z[rows], "author": real[rows], "task": y[rows]})
    erased = SplinceEraser.from_moments(moments, keep=["task"])(x)
    same = SplinceEraser.fit(x, {"topic": z, "author": real}, keep={"task": y})(x)
    torch.testing.assert_close(erased, same, rtol=0, atol=1e-10)
    assert linear_r2(erased, {"topic": z, "author": real}) <= 1e-12
    assert (covariance(erased, y) - covariance(x, y)).abs().max() < 1e-12


def test_a_column_that_is_the_concept_leaves_no_rounding_to_read_it_from() -> None:
    z, y = torch.arange(N) % 2, torch.arange(N) // 2 % 2  # unrelated
    x = torch.randn(N, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + (z + y)[:, None]
    x[:, 0] = 0.7 * z + 0.1
    assert len(SplinceEraser.fit(x, z, keep=y)(x)[:, 0].unique()) == 1


def test_what_cannot_be_erased_and_kept_is_refused() -> None:
    x, z, y = draw()
    with pytest.raises(ValueError, match="z and y share a direction of x, which cannot be erased and kept"):
        SplinceEraser.fit(x, z, keep=z == 0)
    moments = ConceptMoments.fit(x, {"z": z, "y": y})
    with pytest.raises(ValueError, match="no concept 'w': there are z, y"):
        SplinceEraser.from_moments(moments, keep=["w"])
    with pytest.raises(ValueError, match="every concept is kept, so that nothing is erased"):
        SplinceEraser.from_moments(moments, keep=["z", "y"])
    with pytest.raises(ValueError, match="'y' is to be erased and kept"):
        SplinceEraser.fit(x, {"y": z}, keep=y)
    with pytest.raises(ValueError, match="needs the moments of both concepts"):
        SplinceEraser.from_moments(ClassMoments.fit(x, z), keep=["y"])
