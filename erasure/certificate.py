"""Measured proof of what an erased dataset still tells about its classes, order by order."""

from dataclasses import dataclass

import torch
from torch import Tensor

from erasure.moments import ClassMoments


class BrokenGuaranteeError(Exception):
    """An erased dataset does not have the equal moments that its eraser promises."""


@dataclass(frozen=True)
class Certificate:
    """How far the class moments of one erased split are from equal (Theorems 2.2 and 2.3 of the paper).

    No predictor of degree N beats the constant one if and only if class moments up to order N are equal.

    Attributes:
        n: examples in the split.
        mean_gap: max_j ‖m_j - m̄‖ / √tr Σ_xx, Σ_xx of the split before erasure.
        covariance_gap: max_j ‖Σ_j - Σ̄‖_F / ‖Σ_xx‖_F, Σ̄ the average class covariance.
        edit_size: E‖x' - x‖² / tr Σ_xx.
        out_of_range: fraction of erased values outside the admissible range [0, 1].
        rounding: relative size of one rounding of the stored dtype, on the scale of the gaps.
    """

    n: int
    mean_gap: float
    covariance_gap: float
    edit_size: float
    out_of_range: float
    rounding: float


def certify(original: Tensor, erased: Tensor, z: Tensor, num_classes: int) -> Certificate:
    """Certificate of `erased` against `original`, both [n, ...] with labels `z` [n]; `erased` as it is stored."""
    before = ClassMoments.fit(original, z, num_classes=num_classes)
    after = ClassMoments.fit(erased, z, num_classes=num_classes)
    variance = before.total.trace().clamp(min=torch.finfo(torch.float64).tiny)
    seen = after.counts > 0  # a small held-out split may lack a class
    mean_gap = (after.means - after.mean)[seen].norm(dim=1).max() / variance.sqrt()
    spread = torch.stack([(c - after.within).norm() for c in after.covariances[seen]]).max()
    edit = sum(
        ((b.double() - a.double()) ** 2).sum() for a, b in zip(original.split(8192), erased.split(8192), strict=True)
    )
    outside = ((erased < 0) | (erased > 1)).to(torch.float64).mean()
    return Certificate(
        n=len(z),
        mean_gap=float(mean_gap),
        covariance_gap=float(spread / before.total.norm().clamp(min=torch.finfo(torch.float64).tiny)),
        edit_size=float(edit / len(z) / variance),
        out_of_range=float(outside),
        rounding=float(torch.finfo(erased.dtype).eps * (1 + before.mean.square().sum() / variance).sqrt()),
    )


def require_erased(certificate: Certificate, order: int, eraser: str) -> None:
    """Raise BrokenGuaranteeError unless class moments up to `order` are equal to the stored dtype's accuracy."""
    tolerance = 8 * certificate.rounding + 1e-10  # 1e-10: what the closed forms are held to in float64
    gaps = {"mean": certificate.mean_gap, "covariance": certificate.covariance_gap}
    for name, gap in list(gaps.items())[:order]:
        if not gap <= tolerance:
            raise BrokenGuaranteeError(
                f"{eraser} promises equal class {name}s, but the relative gap on its training split is "
                f"{gap:.1e}, above {tolerance:.1e}: the erased data is not used; please report this dataset"
            )
