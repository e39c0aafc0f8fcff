"""SPLINCE: linear erasure of a concept that keeps the covariance with another label."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from erasure.concept_moments import ConceptMoments, named_concepts
from erasure.covariance_factor import CovarianceFactor
from erasure.erasers.leace import LeaceEraser, exceeds_rounding, span
from erasure.few_examples import warned_of_few
from erasure.inputs import Array, as_tensor, require_same_rows
from erasure.moments import ClassMoments
from erasure.projection_eraser import ProjectionEraser, removed_columns

_SMALLEST_ANGLE = 1e-6  # sine below which the two concepts are taken to share a direction


@dataclass(frozen=True, repr=False)
class SplinceEraser(ProjectionEraser):
    """Linear erasure of z that keeps Cov(x, y) with a task label y (Holstege, Ravfogel & Wouters 2025).

    In whitened coordinates let U span the cross-covariance with z, and V that with y. LEACE removes U orthogonally,
    including the part that y shares with U. Here U is removed along V: x' = x - F U (V⊥U)⁺ F⁺ (x - m̄), where
    F Fᵀ = Σ_xx and V⊥ = I - V Vᵀ. No affine map with Cov(x', z) = 0 and Cov(x', y) = Cov(x, y) has a smaller edit, in
    any norm. Without y it is LEACE.

    Both conditions can be met only if no direction predicts z and y alike. Concepts that determine each other are
    refused. A column that varies with z alone, to rounding, is set to its mean.

    Attributes:
        cosine: largest cosine between a direction of z and one of y, whitened; the edit grows as it approaches 1.

    Example:
        >>> import torch
        >>> from erasure import ConceptMoments, SplinceEraser
        >>> z, y = torch.arange(300) % 2, torch.arange(300) % 3
        >>> x = torch.randn(300, 6, dtype=torch.float64)
        >>> x += z[:, None] + y[:, None] * torch.arange(6)
        >>> eraser = SplinceEraser.fit(x, z, keep=y)
        >>> before, after = (ConceptMoments.fit(data, {"z": z, "y": y}).cross for data in (x, eraser(x)))
        >>> bool(after[:, :2].abs().max() < 1e-12), bool((after - before)[:, 2:].abs().max() < 1e-12)
        (True, True)
    """

    cosine: float = 0.0
    version = 1
    erased_order = 1
    any_concept = True

    @classmethod
    def fit(
        cls,
        x: Array,
        z: Any,
        *,
        keep: Any = None,
        num_classes: int | None = None,
        dim: int | None = None,
        **options: Any,
    ) -> Self:
        """Fit on examples.

        Args:
            x: examples, [n, ...] or [..., d].
            z: concept to erase, in any form that `ConceptMoments` takes.
            keep: task label y, in the same forms, whose covariance with x is kept; None for none.
            num_classes: k, if z holds classes and nothing is kept.
            dim: values per example; all of x[0] by default.
            options: options of `from_moments`.

        Raises:
            ValueError: as `from_moments`, or concepts of the same name in z and y.
        """
        if keep is None:
            return super().fit(x, z, num_classes=num_classes, dim=dim, **options)
        if num_classes is not None:
            raise ValueError(
                f"num_classes={num_classes} counts the classes of one concept: leave it out where keep is passed"
            )
        require_same_rows(x, named_concepts(keep, "keep"))
        erased = named_concepts(z)
        preserved = {name: as_tensor(one, "keep") for name, one in named_concepts(keep, "y").items()}
        if both := erased.keys() & preserved.keys():
            raise ValueError(f"{min(both)!r} is to be erased and kept: give the two concepts different names")
        moments = ConceptMoments.fit(x, erased | preserved, dim=dim)
        warned_of_few(cls, moments)
        return cls.fit_moments(moments, keep=tuple(preserved), **options)

    @classmethod
    def from_moments(
        cls, moments: ClassMoments | ConceptMoments, *, keep: Sequence[str] = (), rank_tolerance: float = 1e-10
    ) -> Self:
        """Fit from moments.

        Args:
            moments: `ConceptMoments` of several concepts by name, or moments of classes if nothing is kept.
            keep: names of the concepts to keep; all others are erased.
            rank_tolerance: as for LEACE.

        Raises:
            ValueError: an unknown name, nothing to erase, a direction that both concepts share, or as LEACE.
        """
        if not keep:
            leace = LeaceEraser.from_moments(moments, rank_tolerance=rank_tolerance)
            return cls(leace.mean, leace.num_classes, leace.left, leace.right, constant=leace.constant)
        LeaceEraser.require_options(rank_tolerance=rank_tolerance)
        if not isinstance(moments, ConceptMoments):
            raise ValueError(f"keep={list(keep)}: needs the moments of both concepts, ConceptMoments.fit(x, {{...}})")
        keep = [keep] if isinstance(keep, str) else list(keep)
        moments.positions(keep)  # raises for an unknown name
        erased = [name for name in moments.concepts if name not in keep]
        if not erased:
            raise ValueError(f"keep={keep}: every concept is kept, so that nothing is erased")
        moments.require_examples(erased)
        z, y = (moments.whitened_cross(names) for names in (erased, keep))
        total = moments.total
        factor = CovarianceFactor(total, moments.mean, moments.n, moments.epsilon)
        hidden_left, hidden_right = factor.null_projection(torch.cat([z, y], 1))
        split = factor.rank

        def real_span(cross: Tensor) -> Tensor:
            def real(u: Tensor) -> Tensor:
                rows = factor.solve_transposed(u[:split]).T + u[split:].T @ hidden_right
                return exceeds_rounding(rows, cross, moments)

            return span(torch.cat([factor.solve(cross), hidden_right @ cross]), rank_tolerance, None, real)

        u, v = real_span(z), real_span(y)
        cosine = float(torch.linalg.svdvals(u.T @ v).amax()) if v.numel() and u.numel() else 0.0
        outside = u - v @ (v.T @ u)
        if u.shape[1] and not torch.linalg.svdvals(outside)[-1] > _SMALLEST_ANGLE:
            raise ValueError(
                f"{', '.join(erased)} and {', '.join(keep)} share a direction of x, which cannot be erased and kept: "
                "choose a label that the erased concept does not determine"
            )
        rows = torch.linalg.pinv(outside)
        left = factor.multiply(u[:split]) + hidden_left @ u[split:]
        right = factor.solve_transposed(rows[:, :split].T).T + rows[:, split:] @ hidden_right
        constant = removed_columns(cls, moments, total, left, right)
        return cls(moments.mean, None, left, right, constant=constant, cosine=cosine)
