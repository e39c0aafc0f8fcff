"""Optimal transport between Gaussians: maps, distances, barycenters; also exact for singular covariances.

Everything is built on square-root factors Σ = F Fᵀ. For two of them, M = F_aᵀ F_b and its orthonormal polar
factor U give the distance W₂(a, b) = min_U ‖F_a U - F_b‖ and the map, where the textbook's
(Σ_a^½ Σ_b Σ_a^½)^½ squares the condition number and needs an eigendecomposition.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from erasure.barycenter_search import Search, align, factor_map
from erasure.covariance_factor import CovarianceFactor
from erasure.polar import polar_factor


class NotConvergedError(RuntimeError):
    """A barycenter that did not reach the tolerance within the allowed rounds."""


def transport_map(source: Tensor, target: Tensor) -> Tensor:
    """Return the optimal linear map A between centred Gaussians: A Σ_source Aᵀ = Σ_target with least E‖Ax - x‖².

    The covariance of A x equals the target to rounding, however ill-conditioned the source (Lemma 2.5). Differentiable
    where the source has full rank; the backward pass raises ValueError elsewhere.

    Args:
        source: [..., d, d] covariances.
        target: [..., d, d] covariances, of no higher rank.

    Returns:
        A, [..., d, d] float64; symmetric positive semi-definite if the source has full rank.

    Raises:
        ValueError: a target of higher rank than its source: no map can make variance out of none.
    """
    return _pairwise(_Map, source, target)


def bures_distance(first: Tensor, second: Tensor) -> Tensor:
    """2-Wasserstein distance between centred Gaussians (Bures distance), [...] for covariances [..., d, d].

    Not squared. Accurate for near-equal covariances: no difference of traces is taken. Differentiable where both have
    full rank; the backward pass raises ValueError elsewhere.
    """
    return _pairwise(_Distance, first, second)


@dataclass(frozen=True)
class Barycenter:
    """The Gaussian barycenter, and the convergence of its search.

    Attributes:
        covariance: S, [d, d] float64.
        excess: after each round, by how much Σ λ_j W₂²(Σ_j, S) is estimated to be above its minimum, relative
            to the variance Σ λ_j tr Σ_j; the first round gives no estimate (infinity).
    """

    covariance: Tensor
    excess: Sequence[float]


def barycenter(
    covariances: Tensor, weights: Tensor | None = None, *, tolerance: float = 1e-16, max_rounds: int = 200
) -> Barycenter:
    """Bures-Wasserstein barycenter: S with S = Σ λ_j (S^½ Σ_j S^½)^½ (Lemma 2.4), the least Σ λ_j W₂²(Σ_j, S).

    Args:
        covariances: [k, d, d].
        weights: λ, [k], not negative; normalised to sum to one; equal by default.
        tolerance: excess of the objective to stop at, relative to the variance. At its least the objective is flat:
            S itself is off by about the root, a hundred-millionth of its size by default, and by 1e-4 to 1e-5 at 1e-9.
            The default is the least that rounding allows even at condition numbers of 1e10.
        max_rounds: rounds allowed; ten to twenty are usual, eighty at condition numbers of 1e8 and more.

    Raises:
        ValueError: weights that are negative or all zero, or a covariance without variance.
        NotConvergedError: the tolerance is not met within the rounds.
    """
    k = len(covariances)
    weights = torch.full((k,), 1 / k, dtype=torch.float64) if weights is None else weights.double()
    if weights.shape != (k,) or not bool((weights >= 0).all()) or not float(weights.sum()) > 0:
        raise ValueError(f"weights={weights.tolist()}: need {k} numbers, none negative, not all zero")
    used = weights.nonzero().squeeze(1).tolist()
    shares = (weights / weights.sum())[used]
    matrices = torch.stack([covariances[j].double() for j in used])
    alignment = align(
        [CovarianceFactor(matrix) for matrix in matrices],
        shares.tolist(),
        (shares.to(matrices)[:, None, None] * matrices).sum(0),
        Search(tolerance, max_rounds, polar_factor),
    )
    if not alignment.excess[-1] <= tolerance:
        raise NotConvergedError(
            f"after {max_rounds} rounds the barycenter is still about {alignment.excess[-1]:.1e} of the variance above "
            f"the least transport cost, tolerance={tolerance:g}: allow more rounds or a larger tolerance"
        )
    return Barycenter(alignment.root @ alignment.root.T, alignment.excess)


class _Map(Function):
    """A of a source and a target covariance [d, d], with A Σ_source A = Σ_target; the numerics are not differentiated.

    Its differential solves dA Σ_s A + A Σ_s dA = dΣ_t - A dΣ_s A: with Σ_s = F Fᵀ and Fᵀ A F = V diag(p) Vᵀ by one
    division by p_i + p_j each, which are positive, so that equal eigenvalues are no matter.
    """

    @staticmethod
    def forward(ctx: Any, source: Tensor, target: Tensor) -> Tensor:
        a, b = CovarianceFactor(source), CovarianceFactor(target)
        if b.rank > a.rank:
            raise ValueError(f"no linear map takes a covariance of rank {a.rank} to one of rank {b.rank}")
        root = b.matrix
        linear_map = factor_map(a, root, polar_factor(a.multiply_transposed(root)))
        ctx.save_for_backward(source, linear_map)
        return linear_map

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        source, linear_map = ctx.saved_tensors
        factor = _cholesky(source)
        p, v = torch.linalg.eigh(_symmetric(factor.T @ linear_map @ factor))
        g = torch.linalg.solve_triangular(factor, _symmetric(gradients[0]), upper=False)
        g = v.T @ torch.linalg.solve_triangular(factor, g.T, upper=False) @ v
        turned = factor @ v
        of_target = turned @ (g / (p[:, None] + p)) @ turned.T
        return -linear_map @ of_target @ linear_map, of_target


class _Distance(Function):
    """W of two covariances [d, d]: ∂W² / ∂Σ_a = I - A, A the map from a to b; zero where W is, which is a kink."""

    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor) -> Tensor:
        a, b = CovarianceFactor(first), CovarianceFactor(second)
        a, b = (a, b) if a.rank >= b.rank else (b, a)
        root = b.matrix
        rotation = polar_factor(a.multiply_transposed(root))
        # ‖F_a‖² = ‖F_a U‖² + ‖F_a (I - U Uᵀ)‖²: a root of lower rank cannot match the second part
        missed = torch.eye(a.rank, dtype=torch.float64, device=first.device) - rotation @ rotation.T
        parts = [a.multiply(rotation) - root, a.multiply(missed)] if a.rank > b.rank else [a.multiply(rotation) - root]
        distance = torch.stack([part.square().sum() for part in parts]).sum().sqrt()
        ctx.save_for_backward(first, second, distance)
        return distance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        first, second, distance = ctx.saved_tensors
        scale = torch.where(distance > 0, gradients[0] / (2 * distance), 0.0)
        one = torch.eye(len(first), dtype=first.dtype, device=first.device)
        for covariance in (first, second):
            _cholesky(covariance)
        return scale * (one - transport_map(first, second)), scale * (one - transport_map(second, first))


def _pairwise(function: type[Function], first: Tensor, second: Tensor) -> Tensor:
    """Apply a function of two covariances [d, d] to all pairs of a broadcast batch."""
    first, second = torch.broadcast_tensors(first.double(), second.double())
    batch, d = first.shape[:-2], first.shape[-1]
    pairs = zip(first.reshape(-1, d, d), second.reshape(-1, d, d), strict=True)
    results = torch.stack([function.apply(a, b) for a, b in pairs])
    return results.reshape(batch + results.shape[1:])


def _cholesky(covariance: Tensor) -> Tensor:
    factor, info = torch.linalg.cholesky_ex(covariance)
    if info:
        raise ValueError("a covariance without full rank has no gradient: add a little to its diagonal")
    return factor


def _symmetric(matrix: Tensor) -> Tensor:
    return (matrix + matrix.mT) / 2
