"""Optimal transport between Gaussians: maps, distances and barycenters, also exact for singular covariances.

All are computed from square-root factors Σ = F Fᵀ. The orthonormal polar factor U of M = F_aᵀ F_b gives the distance
W₂(a, b) = min_U ‖F_a U - F_b‖ and the map. The textbook formula (Σ_a^½ Σ_b Σ_a^½)^½ squares the condition number and
needs an eigendecomposition.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from erasure.barycenter_search import align, transport
from erasure.covariance_factor import CovarianceFactor
from erasure.inputs import as_tensor
from erasure.polar import polar_factor

_LEAST_EPS = 1e-11  # assumed precision of float64 covariances, which may have been computed in float32


class NotConvergedError(RuntimeError):
    """A barycenter that did not reach the tolerance within the allowed rounds."""


def as_covariances(values: Any, name: str) -> Tensor:
    """Return covariances as a tensor in their floating dtype, after checking that they are covariances.

    Rounding is tolerated: asymmetry and negative eigenvalues up to the square root of the dtype's precision in
    coordinates of unit variance, or up to its precision times 32 d relative to the matrix.

    Args:
        values: [..., d, d], a tensor or an array.
        name: their name in error messages.

    Raises:
        ValueError: not square, complex, not finite, or asymmetric or with a negative eigenvalue beyond
            rounding.
    """
    if values.is_complex() if isinstance(values, Tensor) else np.iscomplexobj(values):
        raise ValueError(f"{name} is complex: a covariance of real coordinates is real; pass {name}.real if it is")
    matrices = as_tensor(values, name)
    if matrices.ndim < 2 or matrices.shape[-1] != matrices.shape[-2] or not matrices.numel():
        raise ValueError(f"{name} has shape {list(matrices.shape)}: covariances are square matrices, [..., d, d]")
    matrices = matrices if matrices.is_floating_point() else matrices.double()
    eps = max(torch.finfo(matrices.dtype).eps, _LEAST_EPS)
    every = matrices.reshape(-1, *matrices.shape[-2:])
    for i, matrix in enumerate(every):
        if problem := _problem(matrix.double(), eps):
            raise ValueError(f"{name if len(every) == 1 else f'{name}, matrix {i},'} {problem}")
    return matrices


def _problem(matrix: Tensor, eps: float) -> str | None:
    """Return the reason why a matrix [d, d] is no covariance; None if it is one."""
    if not matrix.isfinite().all():
        return "holds values that are not finite (NaN or infinity): clean the data that it was computed from"
    std, floor = matrix.diagonal().clamp(min=0).sqrt(), 32 * len(matrix) * eps * float(matrix.norm())
    if ((matrix - matrix.T).abs() > eps**0.5 * std * std[:, None] + floor).any():
        return "is not symmetric: a covariance equals its transpose; pass (A + A.T) / 2 if that is meant"
    lifted = matrix + (eps**0.5 * std.square() + (floor or 1.0)).diag()
    if torch.linalg.cholesky_ex(lifted).info:
        least = float(torch.linalg.eigvalsh(matrix)[0])
        return f"has the eigenvalue {least:.3g}: no covariance has a negative one; pass x.T @ x / n of centred rows x"
    return None


def transport_map(source: Tensor | np.ndarray, target: Tensor | np.ndarray) -> Tensor:
    """Return the optimal linear map A between centred Gaussians: A Σ_source Aᵀ = Σ_target with least E‖Ax - x‖².

    The covariance of A x equals the target to rounding, however ill-conditioned the source (Lemma 2.5). No gradient
    passes through it.

    Args:
        source: [..., d, d] covariances.
        target: [..., d, d] covariances, of no higher rank.

    Returns:
        A, [..., d, d] float64; symmetric positive semi-definite if the source has full rank.

    Raises:
        ValueError: matrices that are no covariances (`as_covariances`), or a target of higher rank than its source,
            since no map creates variance in new directions.
    """
    return _pairwise(_map, source=source, target=target)


def bures_distance(first: Tensor | np.ndarray, second: Tensor | np.ndarray) -> Tensor:
    """Return the 2-Wasserstein distance between centred Gaussians, [...] for covariances [..., d, d].

    The Bures distance, not squared. It is accurate for nearly equal covariances, as no difference of traces is taken.
    No gradient passes through it.

    Raises:
        ValueError: matrices that are no covariances (`as_covariances`).
    """
    return _pairwise(_distance, first=first, second=second)


@dataclass(frozen=True)
class Barycenter:
    """The Gaussian barycenter, and the convergence of its search.

    Attributes:
        covariance: S, [d, d] float64.
        excess: estimated excess of Σ λ_j W₂²(Σ_j, S) over its minimum after each round, relative to the variance
            Σ λ_j tr Σ_j; infinity after the first round, which gives no estimate.
    """

    covariance: Tensor
    excess: Sequence[float]


def barycenter(
    covariances: Tensor | np.ndarray, weights: Any = None, *, tolerance: float = 1e-16, max_rounds: int = 200
) -> Barycenter:
    """Return the Bures-Wasserstein barycenter S = Σ λ_j (S^½ Σ_j S^½)^½ (Lemma 2.4), which minimises Σ λ_j W₂²(Σ_j, S).

    Args:
        covariances: [k, d, d].
        weights: λ, [k] numbers, not negative; normalised to sum to one; equal by default.
        tolerance: excess of the objective at which to stop, relative to the variance. The objective is flat at its
            minimum, so the relative error of S is about the square root of the tolerance: 1e-4 to 1e-5 at 1e-9, and
            1e-8 at the default. The default is the least that rounding allows even at condition numbers of
            1e10.
        max_rounds: maximum number of rounds; ten to twenty are usual, eighty at condition numbers of 1e8 and more.

    Raises:
        ValueError: matrices that are no covariances (`as_covariances`), or weights that are negative or all zero.
        NotConvergedError: the tolerance is not met within the rounds.
    """
    covariances = as_covariances(covariances, "covariances")
    if covariances.ndim != 3:
        raise ValueError(f"covariances has shape {list(covariances.shape)}: expected one per class, [k, d, d]")
    k = len(covariances)
    weights = torch.ones(k) if weights is None else as_tensor(weights, "weights")
    if weights.shape != (k,) or weights.is_complex() or not bool((weights >= 0).all()) or not 0 < weights.sum() < inf:
        raise ValueError(f"weights={weights.tolist()}: need {k} numbers, none negative, not all zero")
    weights = weights.double()
    used = weights.nonzero().squeeze(1).tolist()
    shares = (weights / weights.sum())[used]
    matrices = torch.stack([covariances[j].double() for j in used])
    alignment = align(
        [CovarianceFactor(matrix) for matrix in matrices],
        shares.tolist(),
        (shares.to(matrices)[:, None, None] * matrices).sum(0),
        tolerance=tolerance,
        max_rounds=max_rounds,
        polar=polar_factor,
    )
    if not alignment.excess[-1] <= tolerance:
        excess = alignment.excess[-1]
        above = f"is still about {excess:.1e}" if excess < inf else "is an unknown share"  # no estimate after one round
        raise NotConvergedError(
            f"after {max_rounds} rounds the barycenter {above} of the variance above the least transport cost, "
            f"tolerance={tolerance:g}: allow more rounds or a larger tolerance"
        )
    return Barycenter(alignment.root @ alignment.root.T, alignment.excess)


def _map(source: Tensor, target: Tensor) -> Tensor:
    """Return the map A [d, d] of one pair."""
    a, b = CovarianceFactor(source), CovarianceFactor(target)
    if b.rank > a.rank:
        raise ValueError(f"no linear map takes a covariance of rank {a.rank} to one of rank {b.rank}")
    return transport(a, b)


def _distance(first: Tensor, second: Tensor) -> Tensor:
    """Return the distance of one pair."""
    a, b = CovarianceFactor(first), CovarianceFactor(second)
    a, b = (a, b) if a.rank >= b.rank else (b, a)
    root = b.matrix
    rotation = polar_factor(a.multiply_transposed(root))
    # ‖F_a‖² = ‖F_a U‖² + ‖F_a (I - U Uᵀ)‖²: a root of lower rank cannot match the second part
    missed = torch.eye(a.rank, dtype=torch.float64, device=first.device) - rotation @ rotation.T
    parts = [a.multiply(rotation) - root, a.multiply(missed)] if a.rank > b.rank else [a.multiply(rotation) - root]
    return torch.stack([part.square().sum() for part in parts]).sum().sqrt()


def _pairwise(function: Callable[[Tensor, Tensor], Tensor], **covariances: Any) -> Tensor:
    """Apply a function of two covariances [d, d], given by name, to all pairs of a broadcast batch."""
    for name, values in covariances.items():
        if torch.is_grad_enabled() and isinstance(values, Tensor) and values.requires_grad:
            raise ValueError(f"{name} requires a gradient, and this function has none: pass {name}.detach()")
    matrices = {name: as_covariances(values, name).double() for name, values in covariances.items()}
    try:
        first, second = torch.broadcast_tensors(*matrices.values())
    except RuntimeError:
        shapes = " and ".join(f"{name} {list(values.shape)}" for name, values in matrices.items())
        raise ValueError(
            f"{shapes} do not match: give covariances of the same coordinates, one for each pair"
        ) from None
    batch, d = first.shape[:-2], first.shape[-1]
    pairs = zip(first.reshape(-1, d, d), second.reshape(-1, d, d), strict=True)
    with torch.no_grad():
        results = torch.stack([function(a, b) for a, b in pairs])
    return results.reshape(batch + results.shape[1:])
