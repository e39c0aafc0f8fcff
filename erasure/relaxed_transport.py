"""Relaxed optimal transport: a trade-off between the distance from target moments and the size of the edit."""

from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from erasure.polar import gram

_PAIRS = 10  # steps in the memory of L-BFGS
_PATIENCE = 20  # rounds without a smaller gap after which rounding is assumed to allow no progress


def relaxed_transport(
    x: Tensor, mean: Tensor, target: tuple[Tensor, Tensor], by_mean: float, by_covariance: float, *, max_rounds: int
) -> Tensor:
    """Return examples [n, d] that minimise E‖x' - x‖² + by_mean ‖m - mean‖² + by_covariance ‖Σ - T‖²_F.

    The minimum is exact for n > d, up to the tolerance. `target` and `max_rounds` are those of `relaxed_transport_map`;
    the result is in the precision of the examples.
    """
    centre = x.mean(0)
    centred = x - centre
    moved = centred @ relaxed_transport_map(gram(centred) / len(x), target, by_covariance, max_rounds=max_rounds)
    return moved.add_(torch.lerp(centre, mean.to(centre), by_mean / (by_mean + 1)))


def relaxed_transport_map(
    source: Tensor, target: tuple[Tensor, Tensor], weight: float, *, tolerance: float = 1e-6, max_rounds: int = 500
) -> Tensor:
    """Return the linear map A that minimises E‖Ax - x‖² + weight ‖A Σ A - T‖²_F for examples x of covariance Σ.

    A is the identity at weight 0, and approaches the transport map as the weight grows. No other map does better: a
    linear map is the cheapest way from Σ to any covariance S, and the objective is convex in S. Its dual, in a
    symmetric E, is strongly concave,

        (tr Σ - tr (I + 2 weight E)⁻¹ Σ) / (2 weight) - ⟨E, T⟩ - ‖E‖²_F / 2,

    and has the gradient R = A Σ A - T - E with A = (I + 2 weight E)⁻¹. The duality gap, weight ‖R‖²_F, bounds how far
    the objective of A is above its minimum. L-BFGS maximises the dual, scaled by the diagonal of its curvature in the
    eigenvectors of T.

    Args:
        source: Σ, [d, d].
        target: eigenvalues [d] and eigenvectors [d, d] of T.
        weight: weight of the covariance term, not negative.
        tolerance: duality gap at which to stop, relative to tr Σ.
        max_rounds: maximum number of rounds. The search also stops if rounding allows no progress, which happens if Σ
            is singular and T has variance that no linear map can create.

    Returns:
        A, [d, d], symmetric positive definite, in the precision of Σ.
    """
    values, vectors = (part.to(source) for part in target)
    if not source.any():  # every map is optimal
        return torch.eye(len(source)).to(source)
    dual = _Dual(vectors.T @ source @ vectors, values, weight)
    return vectors @ dual.climbed(tolerance, max_rounds) @ vectors.T


class _Dual:
    """The dual of a relaxed transport map, with Σ [d, d] and E in the eigenvectors of T, whose eigenvalues are [d]."""

    def __init__(self, source: Tensor, values: Tensor, weight: float) -> None:
        self.source, self.values, self.weight = source, values, weight
        self.one = torch.eye(len(values), dtype=source.dtype, device=source.device)

    def climbed(self, tolerance: float, max_rounds: int) -> Tensor:
        """Maximise the dual; return the A of the smallest duality gap."""
        enough = tolerance * float(self.source.trace())
        dual = torch.zeros_like(self.source)
        best = current = self.one
        slope = self.source - self.values.diag()
        least, since = self.weight * float(slope.square().sum()), 0
        pairs: deque[tuple[Tensor, Tensor]] = deque(maxlen=_PAIRS)  # steps, and by how much the slope fell over them
        for _ in range(max_rounds):
            if least <= enough or since > _PATIENCE:
                break
            across = self.values.clamp(min=0)[:, None] * current.diagonal()
            step = _newton_like(slope, 1 + 2 * self.weight * (across + across.T), pairs)
            if not (rise := (slope * step).sum()) > 0:
                break
            step, current, further = self._ahead(dual, step, rise)
            pairs.append((step, slope - further))
            dual, slope, since = dual + step, further, since + 1
            if (gap := self.weight * float(slope.square().sum())) < least:
                best, least, since = current, gap, 0
        return best

    def _ahead(self, dual: Tensor, step: Tensor, rise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Shorten a step uphill until it ends not far past the maximum along its line.

        Return the step, and A and the slope at its end. `rise` is the slope along the step at its start.
        """
        while (there := self._at(dual + step)) is None or (there[1] * step).sum() < -0.9 * rise:
            # outside the domain: halve the step; past the maximum: back to where the slope would be zero
            shrink = 0.5 if there is None else float(rise / (rise - (there[1] * step).sum()))
            step, rise = step * shrink, rise * shrink
        return step, *there

    def _at(self, dual: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return A and the slope, or None outside of the dual's domain."""
        root, failed = torch.linalg.cholesky_ex(self.one + 2 * self.weight * dual)
        if failed:
            return None
        inverse = torch.cholesky_inverse(root)
        slope = inverse @ self.source @ inverse - dual
        slope.diagonal().sub_(self.values)
        return inverse, slope


def _newton_like(slope: Tensor, curvature: Tensor, pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the L-BFGS step uphill from a diagonal curvature (Nocedal & Wright 2006, algorithm 7.4).

    The oldest of the pairs comes first.
    """
    step, coefficients = slope.clone(), []
    for moved, fell in reversed(pairs):
        coefficients.append((moved * step).sum() / (moved * fell).sum())
        step.sub_(fell * coefficients[-1])
    step.div_(curvature)
    for (moved, fell), coefficient in zip(pairs, reversed(coefficients), strict=True):
        step.add_(moved * (coefficient - (fell * step).sum() / (moved * fell).sum()))
    return step
