"""Random projection of a given edit size, a control for how much of an effect is due to the size of the edit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from erasure.covariance_factor import CovarianceFactor
from erasure.eraser import Eraser
from erasure.erasers.alf_qleace import AlfQleaceEraser
from erasure.erasers.leace import LeaceEraser
from erasure.erasers.oracle_leace import OracleLeaceEraser
from erasure.erasers.qleace import QleaceEraser
from erasure.erasers.random import random_directions
from erasure.inputs import real_number
from erasure.moments import ClassMoments
from erasure.projection_eraser import constant_columns

_REFERENCES: dict[str, type[Eraser]] = {
    "leace": LeaceEraser,
    "oracle_leace": OracleLeaceEraser,
    "qleace": QleaceEraser,
    "alf_qleace": AlfQleaceEraser,
}


@dataclass(frozen=True, repr=False)
class RandomEditEraser(Eraser):
    """Removal of random directions Q, x - Q D Qᵀ (x - m̄), until the edit is as large as that of another eraser.

    A random projection of equal rank does not control for the size of the edit. Class means lie in directions of large
    variance, so the few dimensions of LEACE hold more variance than as many random ones (docs/methods/random.md).

    Attributes:
        directions: Q, [d, r] with orthonormal columns.
        shares: diagonal of D, [r]: 1 for all directions but the last, which may have less.

    Example:
        >>> import torch
        >>> from erasure import LeaceEraser, RandomEditEraser
        >>> x, z = torch.randn(60, 8, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
        >>> random, leace = RandomEditEraser.fit(x, z, reference="leace"), LeaceEraser.fit(x, z)
        >>> edits = [(eraser(x) - x).square().sum(1).mean() for eraser in (random, leace)]
        >>> torch.testing.assert_close(*edits)
    """

    mean: Tensor
    num_classes: int
    directions: Annotated[Tensor, "d r"]
    shares: Annotated[Tensor, "r"]
    version: ClassVar[int] = 1

    @classmethod
    def require_options(cls, *, reference: str = "alf_qleace", edit_size: float | None = None, **_: Any) -> None:
        if not isinstance(reference, str) or reference not in _REFERENCES:
            raise ValueError(f"reference={reference!r}: choose one of {', '.join(_REFERENCES)}")
        _require_edit_size(0.0 if edit_size is None else real_number(edit_size, "edit_size"))

    @classmethod
    def unread_options(cls, options: Mapping[str, Any]) -> Mapping[str, str]:
        return {} if options["edit_size"] is None else {"reference": "edit_size=null"}

    @classmethod
    def from_moments(
        cls,
        moments: ClassMoments,
        *,
        reference: Literal["leace", "oracle_leace", "qleace", "alf_qleace"] = "alf_qleace",
        edit_size: float | None = None,
        seed: int = 0,
    ) -> Self:
        """Draw as many directions as the edit needs.

        Args:
            moments: moments of the data to erase.
            reference: eraser, with its default options, whose expected edit on the same data is matched.
            edit_size: E‖x' - x‖² / tr Σ_xx to match instead, between 0 and 1.
            seed: seed of the draw.

        Raises:
            ValueError: an unknown reference, an edit size below 0 or above 1 (no projection exceeds 1), or examples
                that do not vary.
        """
        cls.require_options(reference=reference, edit_size=edit_size)
        total = moments.total
        if not bool(total.trace() > 0):
            raise ValueError("all examples are alike: there is nothing to erase")
        if edit_size is None:
            edit_size = expected_edit(_REFERENCES[reference].from_moments(moments), moments)
        _require_edit_size(edit_size)
        directions = random_directions(moments, moments.dim, seed)
        constant_columns(cls, moments, total.diagonal(), (1 - edit_size) * total.diagonal())  # may warn
        variances = (directions * (total @ directions)).sum(0)  # variance along each direction
        left = edit_size * total.trace() - (variances.cumsum(0) - variances)
        # the last direction contributes share² of its variance; rounding never adds another direction
        shares = (left / variances.clamp(min=torch.finfo(variances.dtype).tiny)).clamp(0, 1).sqrt()
        needed = left > 1e-12 * total.trace()
        return cls(moments.mean, moments.num_classes, directions[:, needed], shares[needed])

    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:  # noqa: ARG002
        return x - ((x - self.mean) @ self.directions * self.shares) @ self.directions.T


def _require_edit_size(edit_size: float) -> None:
    if not 0 <= edit_size <= 1 + 1e-9:
        raise ValueError(
            f"edit_size={edit_size:.4g}: a projection edits between 0 and 1 times the variance; choose "
            "another reference, or give an edit_size"
        )


def expected_edit(eraser: Eraser, moments: ClassMoments) -> float:
    """Return E‖x' - x‖² / tr Σ_xx of an eraser that is affine on every class, from moments alone.

    With x = m_j + F_j ξ and ξ of unit covariance, the change of x is the change of m_j plus a term linear in ξ. One
    evaluation at m_j and one per column of F_j give both.
    """
    edit = 0.0
    for j, weight in enumerate(moments.weights.tolist()):
        factor = CovarianceFactor(moments.covariance(j), moments.means[j], epsilon=moments.epsilon)
        points = torch.cat([moments.means[j : j + 1], moments.means[j] + factor.matrix.T])
        change = eraser(points, torch.full((len(points),), j)) - points
        edit += weight * float(change[0].square().sum() + (change[1:] - change[0]).square().sum())
    return edit / float(moments.total.trace())
