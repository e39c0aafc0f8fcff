"""Gradients of `erasure.transport`'s map and distance, in closed form; the numerics forward are not differentiated."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class DifferentiableMap(Function):
    """A of a source and a target covariance [d, d], symmetric, with A Σ_source A = Σ_target.

    Its differential solves dA Σ_s A + A Σ_s dA = dΣ_t - A dΣ_s A: with Σ_s = F Fᵀ and Fᵀ A F = V diag(p) Vᵀ by one
    division by p_i + p_j each, which are positive, so that equal eigenvalues are no matter.
    """

    @staticmethod
    def forward(ctx: Any, source: Tensor, _: Tensor, found: Tensor) -> Tensor:
        ctx.save_for_backward(source, found)
        return found.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        source, found = ctx.saved_tensors
        factor = _factor(source)
        p, v = torch.linalg.eigh(_symmetric(factor.T @ found @ factor))
        g = torch.linalg.solve_triangular(factor, _symmetric(gradients[0]), upper=False)
        g = v.T @ torch.linalg.solve_triangular(factor, g.T, upper=False) @ v
        turned = factor @ v
        of_target = turned @ (g / (p[:, None] + p)) @ turned.T
        return -found @ of_target @ found, of_target, None


class DifferentiableDistance(Function):
    """W of two covariances [d, d]: ∂W² / ∂Σ_a = I - A, A the map from a to b; zero where W is, which is a kink."""

    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor, distance: Tensor) -> Tensor:
        ctx.save_for_backward(first, second, distance)
        return distance.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        from erasure.transport import transport_map

        first, second, distance = ctx.saved_tensors
        scale = torch.where(distance > 0, gradients[0] / (2 * distance), 0.0)
        one = torch.eye(len(first), dtype=first.dtype, device=first.device)
        for covariance in (first, second):
            _factor(covariance)
        return scale * (one - transport_map(first, second)), scale * (one - transport_map(second, first)), None


def _factor(covariance: Tensor) -> Tensor:
    factor, info = torch.linalg.cholesky_ex(covariance)
    if info:
        raise ValueError("a covariance without full rank has no gradient: add a little to its diagonal")
    return factor


def _symmetric(matrix: Tensor) -> Tensor:
    return (matrix + matrix.mT) / 2
