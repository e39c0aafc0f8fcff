"""Certificates: the class information that remains in erased data, order by order."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from erasure.concept_moments import ConceptMoments, moments_of
from erasure.inputs import (
    ROWS_AT_ONCE,
    as_tensor,
    check_batch,
    leading_shape,
    require_same_columns,
    require_same_rows,
)
from erasure.moments import ClassMoments
from erasure.order_spectra import Whitening, whitened_spectra
from erasure.predictability import linear_prediction, quadratic_prediction
from erasure.projection_eraser import require_squares

_ORDER_DIRECTIONS, _ORDER_EXAMPLES = 30, 5_000
_LARGEST_TOLERANCE = 0.01  # class means a hundredth of a standard deviation apart can be learnt


class BrokenGuaranteeError(Exception):
    """An erased dataset does not have the equal moments that its eraser promises."""


@dataclass(frozen=True)
class Certificate:
    """Gaps between the class moments of one erased split (Quirke & Belrose 2025, Theorems 2.2 and 2.3).

    No predictor of degree N beats the constant one if and only if class moments up to order N are equal.
    Sizes are relative to Σ_xx, the total covariance of the training split before erasure, after any z-scoring.

    Attributes:
        n: number of examples in the split, or of vectors of hidden states.
        mean_gap: max_j ‖m_j - m̄‖ / √tr Σ_xx.
        covariance_gap: max_j ‖Σ_j - Σ̄‖_F / ‖Σ_xx‖_F, with Σ̄ the average class covariance of the split.
        edit_size: E‖x' - x‖² / tr Σ_xx.
        out_of_range: fraction of erased values that are not admissible: pixels outside [0, 1], with z-scoring undone.
            None in a certificate of `certify`, which knows no range.
        rounding: effect on the gaps of rounding values once to the stored dtype.
        linear_r2: share of the variance of one-hot labels explained by the best linear prediction, fitted to the split
            itself. It does not depend on scale, whereas the gaps miss directions of little variance.
        linear_chance: expected `linear_r2` for shuffled labels, p / (n - 1). After an eraser of order one, `linear_r2`
            is 0 on the training split, and close to this value on others.
        quadratic_r2: the same for polynomials of degree two in `quadratic_directions` principal components of the
            coordinates, each scaled to unit variance. A value near chance does not prove absence, because other
            directions may hold class information. `order_z_scores` may show it: their directions are chosen without
            that scaling.
        quadratic_chance: expected `quadratic_r2` for shuffled labels.
        quadratic_directions: number of components that the number of examples allows (`erasure.predictability`).
        order_shares: share of the energy of orders 1 to 4 that lies between classes (`erasure.order_spectra`), in the
            directions of largest variance of the erased training split, from at most 5,000 examples.
        order_errors: standard errors of the shares over examples.
        order_z_scores: shares in standard deviations under shuffled labels. They are far below 0 on the split that an
            eraser was fitted to, because equal class moments are closer than those of random samples.
        order_directions: number of directions of the order spectrum.
        order_variance: share of the variance in these directions.

    Fields after `rounding` are None for splits with one class or too few examples, and in results of versions that did
    not measure them.
    """

    n: int
    mean_gap: float
    covariance_gap: float
    edit_size: float
    out_of_range: float | None
    rounding: float
    linear_r2: float | None = None
    linear_chance: float | None = None
    quadratic_r2: float | None = None
    quadratic_chance: float | None = None
    quadratic_directions: int | None = None
    order_shares: list[float] | None = None
    order_errors: list[float] | None = None
    order_z_scores: list[float] | None = None
    order_directions: int | None = None
    order_variance: float | None = None

    def numbers(self) -> dict[str, float]:
        """Return all known values as single numbers, the share of order 3 as "order_shares_3"."""
        numbers: dict[str, float] = {}
        for name, value in vars(self).items():
            if isinstance(value, list):
                numbers |= {f"{name}_{p}": one for p, one in enumerate(value, 1)}
            elif value is not None:
                numbers[name] = value
        return numbers


@dataclass(frozen=True)
class ConceptCertificate:
    """Linear predictability of a concept without classes from erased examples (Belrose et al. 2023).

    Attributes:
        n: number of examples, or of vectors of hidden states.
        linear_r2: R² of the best linear prediction of z, fitted to these examples; the mean over the columns of z.
        linear_chance: expected `linear_r2` for shuffled examples.
        edit_size: E‖x' - x‖² / tr Σ_xx.
    """

    n: int
    linear_r2: float | None
    linear_chance: float | None
    edit_size: float


@overload
def certify(
    original: Tensor | np.ndarray, erased: Tensor | np.ndarray, z: Any, reference: ConceptMoments
) -> ConceptCertificate: ...
@overload
def certify(
    original: Tensor | np.ndarray, erased: Tensor | np.ndarray, z: Any, reference: ClassMoments
) -> Certificate: ...
@overload
def certify(original: Tensor | np.ndarray, erased: Tensor | np.ndarray, z: Any) -> Certificate | ConceptCertificate: ...
def certify(
    original: Tensor | np.ndarray,
    erased: Tensor | np.ndarray,
    z: Any,
    reference: ClassMoments | ConceptMoments | None = None,
) -> Certificate | ConceptCertificate:
    """Measure the information about a concept that remains in one split of erased examples.

    Args:
        original: examples before erasure, [n, ...], or vectors [..., d] such as hidden states [batch, tokens, d].
        erased: the same examples after erasure, floating, as they are stored.
        z: labels, or a concept in any form that `ConceptMoments` takes, with a value for each example or vector. If
            `reference` has moments of vectors [d], vectors may also share a value along leading axes.
        reference: moments of the training split before erasure; those of `original` by default.

    Returns:
        Gaps, R² and orders for classes; R² of the best linear prediction for other concepts.

    Raises:
        ValueError: shapes that do not match, values that are integers or not finite, or training examples that are all
            equal.
    """
    require_same_rows(original, {"z": z, "erased": erased}, x_name="original")
    require_same_columns(original, erased, "erased", "original")
    original, erased = (as_tensor(values, name) for values, name in ((original, "original"), (erased, "erased")))
    if original.shape != erased.shape:
        shapes = f"original has shape {tuple(original.shape)}, erased {tuple(erased.shape)}"
        raise ValueError(f"{shapes}: give the same examples before and after")
    if not erased.is_floating_point():
        raise ValueError(
            f"erased has dtype {erased.dtype}: pass the examples in the floating dtype in which they are stored"
        )
    reference = moments_of(original, z) if reference is None else reference
    require_squares(reference, reference.underflows.tolist())
    total = reference.total
    before, rows = (x.reshape(leading_shape(x, reference.dim).numel(), reference.dim) for x in (original, erased))
    edit = edit_size(before.split(ROWS_AT_ONCE), rows, total)
    if isinstance(reference, ConceptMoments):
        return _concept_certificate(erased, z, reference, edit)
    labels = check_batch(erased, z, reference.dim, reference.num_classes)[1]
    assert labels is not None
    after = ClassMoments.fit(rows, labels, num_classes=reference.num_classes, device=total.device)
    return class_certificate(
        rows,
        labels,
        after,
        mean=reference.mean,
        total=total,
        edit=edit,
        outside=None,
        whitening=whitening_of(after),
    )


def class_certificate(
    erased: Tensor,
    z: Tensor,
    after: ClassMoments,
    *,
    mean: Tensor,
    total: Tensor,
    edit: float,
    outside: float | None,
    whitening: Whitening | None,
) -> Certificate:
    """Measure the class information in erased examples of a split.

    Args:
        erased: examples as stored, floating, [n, d].
        z: labels, [n].
        after: moments of `erased`.
        mean: mean of the training split before erasure, [d].
        total: total covariance of the training split before erasure, [d, d].
        edit: `edit_size` of these examples.
        outside: `out_of_range` of these examples.
        whitening: whitening of the erased training split.
    """
    variance = total.trace()
    mean_gap, covariance_gap = _gaps(after, total, variance)
    return Certificate(
        n=len(z),
        mean_gap=mean_gap,
        covariance_gap=covariance_gap,
        edit_size=edit,
        out_of_range=outside,
        rounding=torch.finfo(erased.dtype).eps * float((1 + mean.square().sum() / variance).sqrt()),
        **_predictions(erased, z, after),
        **_orders(erased.to(total.device), z, whitening),
    )


def out_of_range(erased: Tensor, low: Tensor | float, high: Tensor | float) -> float:
    """Return the fraction of erased values that are not admissible."""
    return int(((erased < low) | (erased > high)).sum()) / max(1, erased.numel())


def _gaps(after: ClassMoments, total: Tensor, variance: Tensor) -> tuple[float, float]:
    """Return the largest gaps of class means and class covariances, relative to the total covariance."""
    shifts = after.shifts.norm(dim=1) / variance.sqrt()
    mean_gap = torch.where(after.counts > 0, shifts, 0.0).max()  # a small held-out split may lack a class
    seen = [j for j, count in enumerate(after.sizes) if count]
    average = after.within
    covariance_gap = torch.stack([(after.covariance(j) - average).norm() for j in seen]).max()
    return float(mean_gap), float(covariance_gap / total.norm())


def _concept_certificate(erased: Tensor, z: Any, reference: ConceptMoments, edit_size: float) -> ConceptCertificate:
    after = ConceptMoments(reference.dim, reference.concepts, device=reference.total.device).update(erased, z)
    linear = linear_prediction(after, erased.dtype)
    return ConceptCertificate(after.n, linear and linear.r2, linear and linear.chance, edit_size)


def edit_size(original: Iterable[Tensor], erased: Tensor, total: Tensor) -> float:
    """Return E‖x' - x‖² / tr Σ_xx.

    Args:
        original: examples [m, ...] before erasure, in consecutive batches.
        erased: all of them afterwards, [n, d].
        total: Σ_xx of the training split, [d, d].

    Raises:
        ValueError: no examples, values that are not finite, or training examples that are all equal.
    """
    if not (variance := float(total.trace())) > 0:
        raise ValueError("all training examples are alike: there is nothing to learn and nothing to erase")
    edit, start = total.new_zeros(()), 0
    for before in original:
        now = erased[start : start + len(before)]
        edit += (now.to(total) - before.to(total).flatten(1)).square().sum()
        start += len(before)
    if not len(erased):
        raise ValueError("there are no examples: give those of a split")
    if not edit.isfinite():
        raise ValueError("original or erased holds values that are not finite (NaN or infinity): clean the data first")
    return float(edit) / len(erased) / variance


def whitening_of(moments: ClassMoments) -> Whitening | None:
    """Return the directions in which orders are measured; None if nothing varies."""
    try:
        return Whitening.of(moments.mean, moments.total, _ORDER_DIRECTIONS, moments.epsilon)
    except ValueError:
        return None


def _predictions(erased: Tensor, z: Tensor, after: ClassMoments) -> dict[str, Any]:
    linear = linear_prediction(after, erased.dtype)
    quadratic = quadratic_prediction(erased, z, after, erased.dtype)
    return {
        "linear_r2": linear and linear.r2,
        "linear_chance": linear and linear.chance,
        "quadratic_r2": quadratic and quadratic.r2,
        "quadratic_chance": quadratic and quadratic.chance,
        "quadratic_directions": quadratic and quadratic.directions,
    }


def _orders(erased: Tensor, z: Tensor, whitening: Whitening | None) -> dict[str, Any]:
    if whitening is None:
        return {}
    try:
        (spectrum,) = whitened_spectra(erased, z, whitening, directions=[_ORDER_DIRECTIONS], most=_ORDER_EXAMPLES)
    except ValueError:  # too few examples of a class
        return {}
    return {
        "order_shares": spectrum.shares.tolist(),
        "order_errors": spectrum.errors.tolist(),
        "order_z_scores": spectrum.z_scores.tolist(),
        "order_directions": spectrum.directions,
        "order_variance": spectrum.variance,
    }


def require_erased(certificate: Certificate, order: int, eraser: str) -> None:
    """Raise BrokenGuaranteeError unless class moments up to `order` are equal to the stored dtype's accuracy."""
    # 1e-10: accuracy of the closed forms in float64
    tolerance = min(8 * certificate.rounding + 1e-10, _LARGEST_TOLERANCE)
    gaps = {"mean": certificate.mean_gap, "covariance": certificate.covariance_gap}
    for name, gap in list(gaps.items())[:order]:
        if not gap <= tolerance:
            raise BrokenGuaranteeError(
                f"{eraser} promises equal class {name}s, but the relative gap on its training split is "
                f"{gap:.1e}, above {tolerance:.1e}: the erased data is not used; please report this dataset"
            )
