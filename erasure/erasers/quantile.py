"""Quantile normalisation: every coordinate has the same distribution in every class."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from erasure.eraser import Eraser
from erasure.inputs import whole_number
from erasure.moments import ClassMoments
from erasure.projection_eraser import constant_columns


@dataclass(frozen=True, repr=False)
class QuantileEraser(Eraser):
    """A map of each coordinate of each class to a common distribution (Bolstad et al. 2003; docs/methods/quantile.md).

    A value x of class j is mapped to G(F_j(x)), where F_j is the cumulative distribution of the class in that
    coordinate and G a common quantile function. G is the mean of the quantile functions of the classes, weighted by
    class size, which gives the smallest edit. Alternatively, G is the quantile function of the uniform distribution on
    [0, 1], which gives F_j(x) itself. F_j and G are linear between quantiles. Differences between classes across
    coordinates, such as correlations, remain.

    Attributes:
        quantiles: q evenly spaced quantiles of each class, [k, d, q].
        target: quantiles of the common distribution, [d, q].

    Example:
        >>> import torch
        >>> from erasure import QuantileEraser
        >>> z = torch.arange(300) % 3
        >>> x = torch.randn(300, 2, dtype=torch.float64) ** 3 * (1 + z[:, None])
        >>> erased = QuantileEraser.fit(x, z, num_quantiles=100)(x, z)
        >>> medians = torch.stack([erased[z == j].median(0).values for j in range(3)])
        >>> bool((medians - medians[0]).abs().max() < 1e-9)
        True
    """

    mean: Tensor
    num_classes: int
    quantiles: Annotated[Tensor, "k d q"]
    target: Annotated[Tensor, "d q"]
    version: ClassVar[int] = 2
    uses_labels: ClassVar[bool] = True

    @classmethod
    def require_options(cls, *, num_quantiles: int = 256, target: str = "mean", **_: Any) -> None:
        if whole_number(num_quantiles, "num_quantiles") < 2:
            raise ValueError(f"num_quantiles={num_quantiles}: a distribution needs at least 2")
        if target not in ("mean", "uniform"):
            raise ValueError(f"target={target!r}: must be 'mean' or 'uniform'")

    @classmethod
    def from_moments(cls, moments: ClassMoments, **options: Any) -> Self:  # noqa: ARG003
        """Raise ValueError, because the fit needs examples."""
        raise ValueError(f"{cls.__name__} needs examples, not only their moments: call {cls.__name__}.fit(x, z)")

    @classmethod
    def fit_examples(  # pyright: ignore[reportIncompatibleMethodOverride] its options are these alone
        cls,
        x: Tensor,
        z: Tensor,
        moments: ClassMoments,
        *,
        num_quantiles: int = 256,
        target: Literal["mean", "uniform"] = "mean",
    ) -> Self:
        """Fit on examples.

        Args:
            x: floating, [n, ...].
            z: labels, [n].
            moments: moments of these examples, at least two per class.
            num_quantiles: q, evenly spaced from the smallest to the largest value of a class. As many quantiles as
                examples represent the distribution of a class exactly.
            target: "mean" for the smallest edit, "uniform" for the cumulative distribution itself.

        Raises:
            ValueError: fewer than two quantiles, an unknown target, or a class with fewer than two examples.
        """
        cls.require_options(num_quantiles=num_quantiles, target=target)
        moments.require_examples()
        flat, device = x.flatten(1), moments.mean.device
        levels = torch.linspace(0, 1, num_quantiles, dtype=torch.float64).to(device)
        classes = [flat[(z == j).to(flat.device)].to(device, torch.float64) for j in range(moments.num_classes)]
        quantiles = torch.stack([_quantiles(rows, levels) for rows in classes])
        if target == "uniform":
            common = levels.expand_as(quantiles[0]).contiguous()
        else:
            common = (moments.weights[:, None, None] * quantiles).sum(0)
            constant_columns(cls, moments, moments.total.diagonal(), common.var(1))  # may warn
        return cls(moments.mean, moments.num_classes, quantiles, common)

    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:
        """Return G(F_z(x)) for rows [n, d]; values outside the range of a class go to the ends of the common range."""
        assert z is not None
        erased = torch.empty_like(x)
        for j, quantiles in enumerate(self.quantiles):
            rows = z == j
            erased[rows] = _interpolated(x[rows].T.contiguous(), quantiles, self.target).T
        return erased


def _quantiles(x: Tensor, levels: Tensor) -> Tensor:
    """Return the quantiles [d, q] of rows [n, d], linear between examples."""
    ordered = x.sort(0).values
    positions = levels * (len(x) - 1)
    below = positions.floor().long().clamp(max=len(x) - 2)
    return torch.lerp(ordered[below], ordered[below + 1], (positions - below)[:, None]).T.contiguous()


def _interpolated(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    """Return the piecewise linear function through `points` and `values`, [d, q], at x [d, n]; the last tie counts."""
    above = torch.searchsorted(points, x, right=True).clamp(1, points.shape[1] - 1)
    low, high = points.gather(1, above - 1), points.gather(1, above)
    fraction = ((x - low) / (high - low).clamp(min=torch.finfo(x.dtype).tiny)).clamp(0, 1)
    fraction = torch.where(x >= high, 1.0, fraction)  # otherwise 0 for ties at the largest point
    return torch.lerp(values.gather(1, above - 1), values.gather(1, above), fraction)
