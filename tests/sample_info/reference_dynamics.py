"""The plain, slow way: each leave-one-out system by an eigendecomposition of its own."""

import torch
from torch import Tensor

from sample_info.linearized.descent import LinearizedDescent


def coefficients(kernel: Tensor, residual: Tensor, descent: LinearizedDescent, n: int | None = None) -> Tensor:
    """a(t) = -φ_t(Θ + λI) (f_0(X) - Y), [n, k], by eigendecomposition (equation 50).

    Args:
        kernel: Θ, [n k, n k] float64.
        residual: f_0(X) - Y, [n, k].
        descent: the training.
        n: size of the whole training set, if these are not all of its examples.
    """
    values, vectors = torch.linalg.eigh(kernel)
    gains = descent.filter(values.clamp(min=0) + descent.weight_decay, n or len(residual))
    return -(vectors @ (gains * (vectors.T @ residual.flatten()))).view_as(residual)


def change_without(
    i: int, kernel: Tensor, held_out_kernel: Tensor, residual: Tensor, descent: LinearizedDescent
) -> tuple[float, float]:
    """‖w - w_-i‖² and the mean over held-out inputs of ‖f(x) - f_-i(x)‖², of example i alone.

    Args:
        i: the example left out.
        kernel: Θ, [n k, n k] float64.
        held_out_kernel: Θ(x, X), [m k, n k].
        residual: f_0(X) - Y, [n, k].
        descent: the training.
    """
    return difference_without(i, kernel, held_out_kernel, residual, descent, coefficients(kernel, residual, descent))


def difference_without(
    i: int, kernel: Tensor, held_out_kernel: Tensor, residual: Tensor, descent: LinearizedDescent, everything: Tensor
) -> tuple[float, float]:
    """`change_without`, given the coefficients [n, k] of training on everything."""
    n, k = residual.shape
    others = torch.arange(n) != i
    rows = others.repeat_interleave(k)
    difference = everything.clone()
    difference[others] -= coefficients(kernel[rows][:, rows], residual[others], descent, n)
    d = difference.flatten()
    predictions = (held_out_kernel @ d).square().sum() * k / len(held_out_kernel)
    return float(d @ kernel @ d), float(predictions)
