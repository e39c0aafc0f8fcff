"""Erasers that project: x' = x - (x - m̄) Bᵀ Aᵀ with thin factors, the same for every class."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import torch
from torch import Tensor

from erasure.concept_moments import ConceptMoments
from erasure.eraser import Eraser
from erasure.moments import ClassMoments

log = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class ProjectionEraser(Eraser):
    """An affine projection that keeps the global mean. It is never stored as a d × d matrix.

    Attributes:
        left: A, [d, r].
        right: B, [r, d], with B A = I.
        constant: coordinates that lose all their variance. They are set to their means, because a probe that rescales
            coordinates could otherwise learn from rounding errors.
    """

    mean: Tensor
    num_classes: int | None
    left: Annotated[Tensor, "d r"]
    right: Annotated[Tensor, "r d"]
    constant: tuple[int, ...] = field(default=(), kw_only=True)

    @property
    def removed(self) -> int:
        """Number r of dimensions removed."""
        return self.left.shape[1]

    def without(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return A and B of this projection followed by the removal of orthonormal columns v [d, m] of its range."""
        return torch.cat([self.left, v], 1), torch.cat([self.right, v.T - (v.T @ self.left) @ self.right])

    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:  # noqa: ARG002
        return made_constant(x - (x - self.mean) @ self.right.T @ self.left.T, self.constant, self.mean)


def removed_columns(
    kind: type[Eraser], moments: ClassMoments | ConceptMoments, covariance: Tensor, left: Tensor, right: Tensor
) -> tuple[int, ...]:
    """Return the coordinates to which x - (x - m̄) Bᵀ Aᵀ leaves no variance, as `constant_columns`.

    `covariance` is Σ_xx, [d, d], which takes as long as the rest to compute from moments of many classes.
    """
    product = covariance @ right.T
    before = covariance.diagonal()
    after = before - 2 * (left * product).sum(1) + (left @ (right @ product) * left).sum(1)
    return constant_columns(kind, moments, before, after)


def constant_columns(
    kind: type[Eraser], moments: ClassMoments | ConceptMoments, before: Tensor, after: Tensor
) -> tuple[int, ...]:
    """Return the coordinates that vary before erasure, and after it by rounding only, given their variances [d].

    Waits once for the device. Logs a warning if no coordinate varies by more than the rounding of the examples.

    Raises:
        ValueError: see `require_squares`.
    """
    eps, square = torch.finfo(before.dtype).eps, moments.mean.square()
    rounding = 10 * len(before) * eps * before  # as in `CovarianceFactor`, as is the next
    live = before > (32 * eps) ** 2 * square
    noise = 10 * moments.epsilon**2 / 12 * (before + square)
    nothing_left = live.any() & (~live | (after <= torch.maximum(noise, rounding))).all()
    flags = torch.cat([nothing_left[None], (before > 0) & (after <= rounding), moments.underflows]).tolist()
    nothing, gone = flags[0], flags[1 : 1 + len(before)]
    require_squares(moments, flags[1 + len(before) :])
    if nothing:
        log.warning(
            "%s removes all dimensions in which x varies: every example becomes their mean; erase fewer classes or "
            "directions, or take more coordinates",
            kind.__name__,
        )
    return tuple(i for i, constant in enumerate(gone) if constant)


def require_squares(moments: ClassMoments | ConceptMoments, underflows: Sequence[bool]) -> None:
    """Raise ValueError if a column of moments varies, but by so little that its squares underflow."""
    if any(underflows):
        i = underflows.index(True)
        column = f"column {i} of x" if i < moments.dim else f"column {i - moments.dim} of z"
        raise ValueError(f"{column} varies by less than 1e-150, and squares underflow: multiply it, or leave it out")


def made_constant(x: Tensor, columns: tuple[int, ...], mean: Tensor) -> Tensor:
    """Set some columns of `x` [n, d] to their means, in place."""
    if columns:
        at = torch.tensor(columns).to(x.device, non_blocking=True)
        x[:, at] = mean[at]
    return x
