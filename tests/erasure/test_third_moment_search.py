"""Third moments against explicit tensors, and the search for the direction of the largest."""

import pytest
import torch
from torch import Tensor

from erasure import ClassMoments
from erasure.third_moment_search import ThirdMoments, best_angle, climb, on_circle


def mixture(k: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor, ThirdMoments]:
    """Skewed classes of different size and mean zero."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.arange(k).repeat_interleave(torch.arange(20, 20 + 7 * k, 7))
    x = torch.rand(len(z), d, generator=generator, dtype=torch.float64) ** (1 + z[:, None])
    y = x - torch.stack([x[z == j].mean(0) for j in range(k)])[z]
    return y, z, ThirdMoments.of(y, z, ClassMoments.fit(y, z))


def tensors(y: Tensor, z: Tensor) -> Tensor:
    """D_j, every entry: [k, d, d, d]."""
    third = torch.stack([torch.einsum("ia,ib,ic->abc", *[y[z == j]] * 3) / (z == j).sum() for j in z.unique()])
    return third - third.mean(0)


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("k", "d"), [(2, 1), (3, 4), (5, 6)])
def test_values_and_gradients_are_those_of_the_tensors(k: int, d: int) -> None:
    y, z, third = mixture(k, d)
    full, classes = tensors(y, z), torch.arange(k)
    u, v = random(d, k), random(d, k, seed=2)
    a, b = third.products(u), third.products(v)
    torch.testing.assert_close(third.gradients(a, classes), torch.einsum("jabc,bj,cj->aj", full, u, u))
    plane = [torch.einsum("jabc,aj,bj,cj->j", full, *three) for three in ((u, u, u), (u, u, v), (u, v, v), (v, v, v))]
    torch.testing.assert_close(third.on_plane(a, b, classes), torch.stack(plane))
    angle = random(k, seed=3)
    w = u * angle.cos() + v * angle.sin()
    on = torch.einsum("jabc,aj,bj,cj->j", full, w, w, w)
    torch.testing.assert_close(on_circle(torch.stack(plane), angle), on)


def test_the_best_angle_is_that_of_a_fine_grid() -> None:
    plane = random(4, 200)
    fine = torch.linspace(-torch.pi / 2, torch.pi / 2, 20_001, dtype=torch.float64)
    expected = on_circle(plane[:, None], fine[:, None]).abs().amax(0)
    values = on_circle(plane, best_angle(plane)).abs()
    torch.testing.assert_close(values, expected, rtol=1e-3, atol=0)  # one step of Newton's from the grid
    assert (values >= plane[0].abs()).all()


def test_a_climb_ends_at_an_eigenvector_no_lower_than_any_random_direction() -> None:
    y, z, third = mixture(3, 5)
    full, classes = tensors(y, z), torch.arange(3).repeat_interleave(6)
    removed = torch.linalg.qr(random(5, 1, seed=4)).Q
    start = random(5, 18)
    start = start - removed @ (removed.T @ start)
    u, values = climb(third, classes, start / start.norm(dim=0), removed)
    torch.testing.assert_close(u.norm(dim=0), torch.ones(18, dtype=torch.float64))
    assert float((removed.T @ u).abs().max()) < 1e-12
    gradient = torch.einsum("jabc,bj,cj->aj", full[classes], u, u)
    torch.testing.assert_close(values, (gradient * u).sum(0).abs())
    left = gradient - removed @ (removed.T @ gradient)
    across = (left - u * (u * left).sum(0)).norm(dim=0)
    assert float(across.max()) < 1e-2 * float(values.max())  # D(u, u, ·) = λ u among what is left
    other = random(5, 20_000, seed=5)
    other = other - removed @ (removed.T @ other)
    other = other / other.norm(dim=0)
    highest = torch.einsum("jabc,am,bm,cm->jm", full, other, other, other).abs().amax(1)
    assert (values.view(3, 6).amax(1) >= highest).all()
