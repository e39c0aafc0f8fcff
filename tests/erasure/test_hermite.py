"""Hermite kernels against explicit Hermite tensors."""

import itertools
import math

import pytest
import torch
from scipy.special import eval_hermitenorm
from torch import Tensor

from erasure.hermite import hermite_kernels


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def hermite_tensor(x: Tensor, p: int) -> Tensor:
    """He_p of each row of x [n, r]: distinct entries of its r^p, each times the root of how often it is there."""
    columns = []
    for place in itertools.combinations_with_replacement(range(x.shape[1]), p):
        degrees = [place.count(i) for i in range(x.shape[1])]
        times = math.factorial(p) / math.prod(map(math.factorial, degrees))
        entry = math.prod(torch.from_numpy(eval_hermitenorm(m, x[:, i].numpy())) for i, m in enumerate(degrees))
        columns.append(math.sqrt(times) * entry)
    return torch.stack(columns, 1)


@pytest.mark.parametrize("r", [1, 2, 6])
def test_kernels_are_inner_products_of_hermite_tensors(r: int) -> None:
    x, y = normal(5, r), normal(4, r, seed=1)
    for p, kernel in enumerate(hermite_kernels(x, y, 5), start=1):
        explicit = hermite_tensor(x, p) @ hermite_tensor(y, p).T / math.factorial(p)
        assert torch.allclose(kernel, explicit, rtol=1e-10, atol=1e-10 * float(explicit.abs().max())), p
