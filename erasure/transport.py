"""Optimal transport between Gaussians: maps, distances, barycenters; exact for singular covariances, too.

Everything is built on square-root factors Σ = F Fᵀ. For two of them, M = F_aᵀ F_b and its orthonormal polar
factor U give the distance W₂(a, b) = min_U ‖F_a U - F_b‖ and the map, where the textbook's
(Σ_a^½ Σ_b Σ_a^½)^½ squares the condition number and needs an eigendecomposition.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import Function

from erasure.linalg import CovarianceFactor
from erasure.polar import orthonormalise, polar_factor, rough_polar_factor
from erasure.transport_gradients import DifferentiableDistance, DifferentiableMap

log = logging.getLogger(__name__)


class NotConvergedError(RuntimeError):
    """A barycenter is not as accurate as asked for within the rounds allowed."""


def transport_map(source: Tensor, target: Tensor) -> Tensor:
    """The optimal linear map A between centred Gaussians: A Σ_source Aᵀ = Σ_target with least E‖Ax - x‖².

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

    def one(a: CovarianceFactor, b: CovarianceFactor) -> Tensor:
        if b.rank > a.rank:
            raise ValueError(f"no linear map takes a covariance of rank {a.rank} to one of rank {b.rank}")
        root = b.matrix
        return _map(a, root, polar_factor(a.multiply_transposed(root)))

    return _pairwise(one, DifferentiableMap, source, target)


def bures_distance(first: Tensor, second: Tensor) -> Tensor:
    """2-Wasserstein distance between centred Gaussians (Bures distance), [...] for covariances [..., d, d].

    Not squared. Accurate for near-equal covariances: no difference of traces is taken. Differentiable where both have
    full rank; the backward pass raises ValueError elsewhere.
    """

    def one(a: CovarianceFactor, b: CovarianceFactor) -> Tensor:
        a, b = (a, b) if a.rank >= b.rank else (b, a)
        root = b.matrix
        rotation = polar_factor(a.multiply_transposed(root))
        # ‖F_a‖² = ‖F_a U‖² + ‖F_a (I - U Uᵀ)‖²: the second part is what a root of lower rank cannot meet
        missed = torch.eye(a.rank, dtype=torch.float64, device=first.device) - rotation @ rotation.T
        parts = [a.multiply(rotation) - root, a.multiply(missed)] if a.rank > b.rank else [a.multiply(rotation) - root]
        return torch.stack([part.square().sum() for part in parts]).sum().sqrt()

    return _pairwise(one, DifferentiableDistance, first, second)


@dataclass(frozen=True)
class Barycenter:
    """The Gaussian that is nearest to all, and how it was found.

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
            The default is the least that rounding allows at condition numbers of 1e10, too.
        max_rounds: rounds allowed; ten to twenty are usual, eighty at condition numbers of 1e8 and more.

    Raises:
        ValueError: weights that are negative or all zero, or a covariance without variance.
        NotConvergedError: the tolerance is not met in time; says how far it came.
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
        rank=None,
        polar=polar_factor,
        tolerance=tolerance,
        max_rounds=max_rounds,
    )
    if not alignment.excess[-1] <= tolerance:
        raise NotConvergedError(
            f"after {max_rounds} rounds the barycenter is still about {alignment.excess[-1]:.1e} of the variance above "
            f"the least transport cost, tolerance={tolerance:g}: allow more rounds or a larger tolerance"
        )
    return Barycenter(alignment.root @ alignment.root.T, alignment.excess)


@dataclass(frozen=True)
class Alignment:
    """Factors turned to lie as close together as they can.

    Attributes:
        root: R [d, r], the weighted mean of the turned factors F_j U_j; R Rᵀ is the barycenter.
        rotations: U_j, [r_j, r] each, in the precision of `polar`; orthonormal rows or columns, whichever are fewer.
        excess: as in `Barycenter`.
    """

    root: Tensor
    rotations: list[Tensor]
    excess: Sequence[float]

    def maps(self, factors: list[CovarianceFactor]) -> Tensor:
        """A_jᵀ, A_j = R U_jᵀ F_j⁺, [k, d, d]: every covariance of rank r or more becomes R Rᵀ to rounding.

        Consumes the factors.

        The covariances are exact because each U_j is made orthonormal here; that the U_j belong to the round
        before R changes only the size of the edit, and is part of `excess`.
        """
        d = len(self.root)
        maps = torch.empty(len(factors), d, d, dtype=torch.float64, device=self.root.device)
        for j in range(len(factors)):
            maps[j] = _map(factors.pop(0), self.root, orthonormalise(self.rotations.pop(0).double())).T
        return maps


def align(
    factors: Sequence[CovarianceFactor],
    weights: Sequence[float],
    average: Tensor,
    *,
    rank: int | None,
    polar: Callable[[Tensor], Tensor] = rough_polar_factor,
    tolerance: float,
    max_rounds: int = 100,
) -> Alignment:
    """Minimise Σ λ_j ‖R - F_j U_j‖² over R and orthonormal U_j: the barycenter's fixed point, on factors.

    A round turns every factor towards R (U_j the polar factor of F_jᵀ R) and takes R to their mean. As
    R = S^½ up to a rotation, this is the fixed point S <- S^-½ (Σ λ_j (S^½ Σ_j S^½)^½)² S^-½ (Álvarez-Esteban
    et al. 2016, equation 7) without an inverse or a square root. What is left of the excess when it stops does
    not touch the equality of covariances, only the size of the edit.

    Args:
        factors: of the Σ_j.
        weights: λ_j, summing to one.
        average: Σ λ_j Σ_j, [d, d], where the search starts.
        rank: r, of the barycenter looked for; None for no limit.
        polar: `polar_factor` for a barycenter that is itself accurate to the last digits; the rough one is for
            maps, whose edit it serves as well.
        tolerance: excess of the objective to stop at, relative to the variance.
        max_rounds: rounds after which it stops short of the tolerance; the last excess tells.

    Raises:
        ValueError: no rounds allowed.
    """
    if max_rounds < 1:
        raise ValueError(f"max_rounds={max_rounds}: need at least one")
    root, last_step = _start(average, rank), math.inf
    variance = float(average.trace())
    excess: list[float] = []
    rotations: list[Tensor] = []
    for _ in range(max_rounds):
        rotations, mean = _turned(factors, weights, root, polar)
        step = float((mean - root).square().sum())  # what moving the mean gains
        root = mean
        # Each half round shrinks the excess by about the root of what a round does to the step; more than
        # thirtyfold is not believed (CIFAR's covariances: twentyfold).
        shrink = min(0.99, max(1 / 30, math.sqrt(step / last_step)))
        rest = step * shrink / (1 - shrink) if math.isfinite(last_step) or step == 0 else math.inf
        last_step = max(step, 1e-300)
        excess.append(rest / variance)
        log.debug("barycenter: round %d, excess %.1e", len(excess), excess[-1])
        if excess[-1] <= tolerance:
            break
    return Alignment(root, rotations, tuple(excess))


def _turned(
    factors: Sequence[CovarianceFactor], weights: Sequence[float], root: Tensor, polar: Callable[[Tensor], Tensor]
) -> tuple[list[Tensor], Tensor]:
    """Rotations of the factors towards R, and the weighted mean of the factors so turned."""
    rotations, mean = [], torch.zeros_like(root)
    for weight, factor in zip(weights, factors, strict=True):
        rotations.append(polar(factor.multiply_transposed(root)))
        turned = rotations[-1].double()  # single precision here would show in the size of the edit
        mean.add_(factor.multiply(turned), alpha=weight)
    return rotations, mean


def _start(average: Tensor, rank: int | None) -> Tensor:
    """A root [d, r] of the average covariance, or of its best approximation of the given rank."""
    whole = CovarianceFactor(average)
    if rank is None or rank >= whole.rank:
        return whole.matrix
    values, vectors = torch.linalg.eigh(average)
    return vectors[:, -rank:] * values[-rank:].sqrt()


def _map(source: CovarianceFactor, root: Tensor, rotation: Tensor) -> Tensor:
    """A = R Uᵀ F⁺."""
    return source.solve_transposed(rotation @ root.T).T


def _pairwise(one, gradient: type[Function], first: Tensor, second: Tensor) -> Tensor:
    """Apply a function of two factors, which has this gradient, to all pairs of a broadcast batch."""
    first, second = torch.broadcast_tensors(first.double(), second.double())
    batch, d = first.shape[:-2], first.shape[-1]
    pairs = list(zip(first.reshape(-1, d, d), second.reshape(-1, d, d), strict=True))
    with torch.no_grad():
        results = [one(CovarianceFactor(a), CovarianceFactor(b)) for a, b in pairs]
    if first.requires_grad or second.requires_grad:
        results = [gradient.apply(a, b, found) for (a, b), found in zip(pairs, results, strict=True)]
    return torch.stack(results).reshape(batch + results[0].shape)
