"""Barycenters of covariances by the fixed point on square-root factors."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from erasure.covariance_factor import CovarianceFactor
from erasure.polar import orthonormalise, polar_factor, rough_polar_factor
from erasure.progress import report_progress
from erasure.torch_modes import without_autocast

_TITLE = "barycenter of class covariances"  # title of the progress bar


def reported_classes(k: int) -> Iterator[int]:
    """Yield 0..k-1, and report each as the class whose covariance is being decomposed for the search."""
    for j in range(k):
        report_progress(_TITLE, 0.0, f"decomposition of class {j}")
        yield j


@dataclass(frozen=True)
class Alignment:
    """Square-root factors aligned by rotations.

    Attributes:
        root: R [d, r], the weighted mean of the rotated factors F_j U_j; R Rᵀ is the barycenter.
        rotations: U_j, [r_j, r] each, in the precision of `polar`; orthonormal rows or columns, whichever are fewer.
        excess: estimated excess of the objective over its minimum after each round, as in
            `erasure.transport.Barycenter`.
    """

    root: Tensor
    rotations: list[Tensor]
    excess: Sequence[float]

    def maps(self, factors: list[CovarianceFactor]) -> Tensor:
        """Return the transposes [k, d, d] of A_j = R U_jᵀ F_j⁺, which map every covariance of rank r or more to R Rᵀ.

        The mapped covariances equal R Rᵀ to rounding because the U_j are orthonormal. The U_j belong to the round
        before R. This affects only the size of the edit, and `excess` includes it. The list of factors is emptied.
        """
        d = len(self.root)
        maps = torch.empty(len(factors), d, d, dtype=torch.float64, device=self.root.device)
        for j in range(len(factors)):
            maps[j] = factor_map(factors.pop(0), self.root, orthonormalise(self.rotations.pop(0).double())).T
        return maps


@without_autocast
def align(
    factors: Sequence[CovarianceFactor],
    weights: Sequence[float],
    average: Tensor,
    *,
    tolerance: float,
    max_rounds: int = 100,
    rank: int | None = None,
    polar: Callable[[Tensor], Tensor] = rough_polar_factor,
) -> Alignment:
    """Minimise Σ λ_j ‖R - F_j U_j‖² over R and orthonormal U_j: the barycenter's fixed point, on factors.

    A round rotates every factor towards R, with U_j the polar factor of F_jᵀ R, and sets R to their mean. As R = S^½ up
    to a rotation, this is the fixed point S <- S^-½ (Σ λ_j (S^½ Σ_j S^½)^½)² S^-½ (Álvarez-Esteban et al. 2016,
    equation 7) without an inverse or a square root. The excess that remains in the end affects only the size of the
    edit, not the equality of covariances.

    Args:
        factors: square-root factors of the Σ_j.
        weights: λ_j, summing to one.
        average: Σ λ_j Σ_j, [d, d], where the search starts.
        tolerance: excess of the objective at which to stop, relative to the variance.
        max_rounds: rounds after which to stop even if the tolerance is not met.
        rank: r, of the barycenter; None for no limit.
        polar: `polar_factor` if the barycenter itself must be accurate; the rough one suffices for maps.

    Raises:
        ValueError: `max_rounds` below one.
    """
    if max_rounds < 1:
        raise ValueError(f"max_rounds={max_rounds}: need at least one")
    root, last_step = _start(average, rank), math.inf
    variance = float(average.trace())
    excess: list[float] = []
    rotations: list[Tensor] = []
    geometric = math.log(min(max(tolerance, 1e-16), 0.1))  # progress follows the logarithm of the excess
    for _ in range(max_rounds):
        rotations = [polar(factor.multiply_transposed(root)) for factor in factors]
        mean = torch.zeros_like(root)
        for weight, factor, rotation in zip(weights, factors, rotations, strict=True):
            mean.add_(factor.multiply(rotation.double()), alpha=weight)  # single precision would enlarge the edit
        step = float((mean - root).square().sum())  # gain by moving the mean
        root = mean
        excess.append(_rest(step, last_step) / variance if variance else 0.0)
        last_step = max(step, 1e-300)
        if excess[-1] <= tolerance:
            break
        done = abs(math.log(min(1.0, excess[-1])) / geometric)  # 0 after the first round, which has no excess yet
        estimate = f": excess {excess[-1]:.1e}" if math.isfinite(excess[-1]) else ""
        report_progress(_TITLE, min(1.0, done), f"round {len(excess)}{estimate}")
    return Alignment(root, rotations, tuple(excess))


def _rest(step: float, last_step: float) -> float:
    """Estimate the excess that remains after a round that gained `step`, by a geometric series.

    A half round shrinks the excess by about the square root of the factor by which a round shrinks the step. This
    square root is taken as at most 30; for the covariances of CIFAR-10 it is 20.
    """
    shrink = min(0.99, max(1 / 30, math.sqrt(step / last_step)))
    return step * shrink / (1 - shrink) if math.isfinite(last_step) or step == 0 else math.inf


def _start(average: Tensor, rank: int | None) -> Tensor:
    """Return a root [d, r] of the average covariance, or of its best approximation of the given rank."""
    whole = CovarianceFactor(average)
    if rank is None or rank >= whole.rank:
        return whole.matrix
    values, vectors = torch.linalg.eigh(average)
    return vectors[:, -rank:] * values[-rank:].sqrt()


def transport(source: CovarianceFactor, target: CovarianceFactor) -> Tensor:
    """Return the optimal linear map A [d, d] from one covariance to another, or as near to it as its rank allows."""
    root = target.matrix
    return factor_map(source, root, polar_factor(source.multiply_transposed(root)))


def factor_map(source: CovarianceFactor, root: Tensor, rotation: Tensor) -> Tensor:
    """Return A = R Uᵀ F⁺, [d, d], of a factor F, a root R [d, r] and a rotation U."""
    return source.solve_transposed(rotation @ root.T).T
