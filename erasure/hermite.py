"""Hermite tensors of order three, and inner products of Hermite tensors of any order, K_p(x, y) = ⟨He_p(x), He_p(y)⟩.

The tensors have r^p entries; only those of order three are small enough to be averaged. Inner products of any order
have a generating function (Mehler 1866),
Σ_p t^p/p! K_p = (1 - t²)^(-r/2) exp((2t x·y - t²(|x|² + |y|²)) / (2(1 - t²))).
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

_TILE = 512  # examples, or rows and columns of a kernel, at once: intermediate results fit in the cache of a core


def hermite_kernels(x: Tensor, y: Tensor, orders: int) -> Iterator[Tensor]:
    """Yield ⟨He_p(x), He_p(y)⟩ / p! of x [n, r] and y [m, r], for p = 1, ..., `orders`, each [n, m]."""
    return _recurrence(x @ y.T, x.square().sum(1)[:, None] + y.square().sum(1), x.shape[1], orders)


def hermite_squares(x: Tensor, orders: int) -> Iterator[Tensor]:
    """Yield ‖He_p(x)‖² / p! of each row of x [n, r], for p = 1, ..., `orders`, each [n]."""
    squares = x.square().sum(1)
    return _recurrence(squares, 2 * squares, x.shape[1], orders)


def _recurrence(products: Tensor, squares: Tensor, r: int, orders: int) -> Iterator[Tensor]:
    """Yield kernels of orders 1, 2, ... from s = x·y and q = |x|² + |y|², by a recurrence.

    Mehler's formula satisfies a differential equation,

    (1 - t²)² G' = (s + (r - q) t + s t² - r t³) G, so that the coefficients of G = Σ_p k_p t^p satisfy
    p k_p = s (k_(p-1) + k_(p-3)) + (r - q + 2(p - 2)) k_(p-2) - (r + p - 4) k_(p-4).
    """
    none = torch.zeros_like(products)
    k1, k2, k3, k4 = torch.ones_like(products), none, none, none  # of one, two, three, four orders below
    for p in range(1, orders + 1):
        following = (k1 + k3).mul_(products).addcmul_(r + 2 * (p - 2) - squares, k2).sub_(k4, alpha=r + p - 4).div_(p)
        k1, k2, k3, k4 = following, k1, k2, k3
        yield following


def kernel_sum(x: Tensor, y: Tensor, weights: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Return Σ_p w_p Σ_ab k_p(x_a, y_b) over orders p = 1, ..., N and all pairs, in float64, and its gradient by x.

    k_p = ⟨He_p(x), He_p(y)⟩ / p!. With s = x·y and q = |x|² + |y|² their generating function G has
    ∂G/∂s = t / (1 - t²) G and ∂G/∂q = -t² / (2 (1 - t²)) G, so that lower orders give the derivatives:

        ∂k_p/∂s = k_(p-1) + k_(p-3) + ...,   ∂k_p/∂q = -(k_(p-2) + k_(p-4) + ...) / 2.
    """
    orders = len(weights)
    by_product = [sum(weights[p::2]) for p in range(orders)]  # of k_p in ∂/∂s
    by_square = [-sum(weights[p + 1 :: 2]) for p in range(orders)]  # of k_p in 2 ∂/∂q
    value, slope = x.new_zeros((), dtype=torch.float64), torch.zeros_like(x)
    for rows, moved in zip(x.split(_TILE), slope.split(_TILE), strict=True):
        for columns in y.split(_TILE):
            along = x.new_full((len(rows), len(columns)), by_product[0])
            inwards = x.new_full((len(rows), len(columns)), by_square[0])
            for p, kernel in enumerate(hermite_kernels(rows, columns, orders), start=1):
                if weights[p - 1]:
                    value += weights[p - 1] * kernel.sum().double()
                if p < orders:
                    along.add_(kernel, alpha=by_product[p])
                    inwards.add_(kernel, alpha=by_square[p])
            moved += along @ columns + inwards.sum(1)[:, None] * rows
    return value, slope


def third_mean(x: Tensor) -> Tensor:
    """Return the mean [r, r, r] over examples [n, r] of He_3(x), x ⊗ x ⊗ x less x ⊗ I in its three orders."""
    r = x.shape[1]
    total = x.new_zeros(r, r * r)
    for part in x.split(_TILE):
        total.addmm_(part.T, _pairs(part))
    contracted = x.mean(0)[:, None, None] * torch.eye(r, dtype=x.dtype, device=x.device)
    return (total / len(x)).view(r, r, r) - contracted - contracted.permute(1, 0, 2) - contracted.permute(1, 2, 0)


def third_slope(x: Tensor, symmetric: Tensor) -> Tensor:
    """Return the gradient of ⟨T, He_3(x)⟩ by each example [n, r], T symmetric [r, r, r]: 3 (T(x, x, ·) - Σ_a T_aa·)."""
    by_pair = symmetric.flatten(0, 1)
    constant = symmetric.diagonal().sum(1)
    return torch.cat([torch.addmm(constant, _pairs(part), by_pair, beta=-1) for part in x.split(_TILE)]).mul_(3)


def _pairs(x: Tensor) -> Tensor:
    """Return x ⊗ x of each row [n, r], [n, r²]."""
    return (x[:, :, None] * x[:, None]).flatten(1)
