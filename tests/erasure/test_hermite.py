"""Hermite kernels against explicit Hermite tensors."""

import itertools
import math

import pytest
import torch
from numpy.polynomial.hermite_e import HermiteE
from torch import Tensor

from erasure.hermite import hermite_kernels, kernel_sum, third_mean, third_slope


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def hermite_tensor(x: Tensor, p: int) -> Tensor:
    """He_p of each row of x [n, r]: distinct entries of its r^p, each times the root of how often it is there."""
    columns = []
    for place in itertools.combinations_with_replacement(range(x.shape[1]), p):
        degrees = [place.count(i) for i in range(x.shape[1])]
        times = math.factorial(p) / math.prod(map(math.factorial, degrees))
        entry = math.prod(torch.from_numpy(HermiteE.basis(m)(x[:, i].numpy())) for i, m in enumerate(degrees))
        columns.append(math.sqrt(times) * entry)
    return torch.stack(columns, 1)


@pytest.mark.parametrize("r", [1, 2, 6])
def test_kernels_are_inner_products_of_hermite_tensors(r: int) -> None:
    x, y = normal(5, r), normal(4, r, seed=1)
    for p, kernel in enumerate(hermite_kernels(x, y, 5), start=1):
        explicit = hermite_tensor(x, p) @ hermite_tensor(y, p).T / math.factorial(p)
        assert torch.allclose(kernel, explicit, rtol=1e-10, atol=1e-10 * float(explicit.abs().max())), p


def test_the_third_tensors_inner_products_are_kernels_and_its_gradient_autograds() -> None:
    x, y = normal(700, 3).requires_grad_(), normal(5, 3, seed=1)
    mine, theirs = third_mean(x), third_mean(y)
    assert (mine * theirs).sum().item() == pytest.approx(6 * hermite_kernels_of(x, y, 3)[2].mean().item(), rel=1e-11)
    ((mine * theirs).sum() * len(x)).backward()
    torch.testing.assert_close(third_slope(x.detach(), theirs), x.grad, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("orders", [3, 5])
def test_the_sum_of_kernels_is_the_sum_and_its_gradient_autograds(orders: int) -> None:
    x, y = normal(7, 3).requires_grad_(), normal(5, 3, seed=1)
    weights = [0.7**p for p in range(orders)]
    value, slope = kernel_sum(x.detach(), y, weights)
    kernels = torch.stack(hermite_kernels_of(x, y, orders))
    expected = (torch.tensor(weights, dtype=torch.float64) * kernels.sum((1, 2))).sum()
    expected.backward()
    assert float(value) == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(slope, x.grad, rtol=1e-11, atol=1e-11)


def hermite_kernels_of(x: Tensor, y: Tensor, orders: int) -> list[Tensor]:
    """The kernels as coefficients of Mehler's formula in t, by its own powers: nothing is done in place."""
    s, q = x @ y.T, x.square().sum(1)[:, None] + y.square().sum(1)
    r, terms = x.shape[1], [torch.ones_like(s)]
    for p in range(1, orders + 1):
        steps = [m * (s if m % 2 else r / m - q / 2) * terms[p - m] for m in range(1, p + 1)]
        terms.append(sum(steps) / p)  # pyright: ignore[reportArgumentType]
    return terms[1:]


def test_tiles_do_not_show() -> None:
    x, y = normal(700, 2), normal(600, 2, seed=1)
    value, slope = kernel_sum(x, y, [0.0, 0.0, 1.0])
    parts = [[kernel_sum(a, b, [0.0, 0.0, 1.0]) for b in y.split(300)] for a in x.split(350)]
    torch.testing.assert_close(value, torch.stack([v for row in parts for v, _ in row]).sum())
    torch.testing.assert_close(slope, torch.cat([row[0][1] + row[1][1] for row in parts]))
