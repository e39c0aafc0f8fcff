"""Gradient-based erasure of any order: images are optimised until class means of Hermite tensors agree."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from erasure.certificate import BrokenGuaranteeError
from erasure.erasers.gradient import GradientEraser, moment_gaps
from erasure.erasers.qleace import QleaceEraser
from erasure.hermite import kernel_sum, third_mean, third_slope
from erasure.inputs import whole_number
from erasure.moments import ClassMoments
from erasure.order_spectra import order_spectrum
from erasure.progress import report_progress
from erasure.projection_eraser import made_constant

_FLOOR = 1e-4  # relative to tr Σ_xx, added to variances before whitening, so that small variances do not dominate
_LARGEST_GAP = 1e-4  # relative to the energy of an order; on the digits QLEACE leaves 8e-3, 1,000 iterations 3e-6


@dataclass(kw_only=True, repr=False)
class GradientOrdersEraser(GradientEraser):
    """Class moments of orders 1 to N made equal by L-BFGS on images within a range, starting from QLEACE.

    Let y be the examples centred at m̄ and whitened by Σ*, the mean and covariance that QLEACE gives every class. The
    loss of examples with class shares λ_j is

        Σ_j λ_j (w_mean ‖m_j‖² / r + w_cov ‖Σ_j - I‖²_F / r²)  +  w_edit E‖x' - x‖² / tr Σ_xx
            + w_order Σ_{p=3..N} Σ_j λ_j ‖E[He_p(y) | j] - E He_p(y)‖² / E‖He_p‖²

    where m_j and Σ_j are the class moments of y in all r directions (with small variances damped), He_p the Hermite
    tensors of order p of the leading directions of y (docs/orders.md), and E‖He_p‖² their energy for normal data. An
    evaluation costs n r³ for order three. From order four on, kernels are summed in tiles at a cost of n², and neither
    tensors nor n × n matrices are formed.

    The classes of all examples move towards each other, so pass all splits at once.

    Args:
        order: N, at least 3.
        directions: number of directions of largest variance of Σ* in which orders from 3 on are made equal. With more
            directions the moments are harder to make equal, and the edit is larger.
        weights: w_mean, w_cov and w_edit; the default was tuned on the digits.
        order_weight: w_order.

    The other arguments are those of `GradientEraser`.

    Raises:
        ValueError: an order below 3, no direction, `order_weight` not positive, or as `GradientEraser`.

    Example:
        >>> import torch
        >>> from erasure import GradientOrdersEraser
        >>> x, z = torch.rand(200, 3, generator=torch.Generator().manual_seed(0)), torch.arange(200) % 2
        >>> eraser = GradientOrdersEraser(weights=(150.0, 24.0, 1e-4), order=3, directions=3)
        >>> erased = eraser.fit_transform(x, z)
        >>> eraser.require_orders(erased, z)  # raises if class moments differ
    """

    weights: tuple[float, float, float] = (1e4, 1e4, 1.0)
    max_iterations: int = 1000
    order: int = 3
    directions: int = 30
    order_weight: float = 1e4
    start: QleaceEraser = field(init=False, repr=False)
    whitening: Tensor = field(init=False, repr=False)  # y = (x - m̄) whitening, [d, d], largest variance first
    variances: Tensor = field(init=False, repr=False)  # of y if x has covariance Σ*, [d]; 1 except for the damping
    version = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("order", "directions"):
            whole_number(getattr(self, name), name)
        if self.order < 3:
            raise ValueError(f"order={self.order}: must be at least 3; GradientEraser erases orders 1 and 2")
        if self.directions < 1 or not 0 < self.order_weight < math.inf:
            raise ValueError(f"directions={self.directions}, order_weight={self.order_weight}: must be positive")

    def require_orders(self, erased: Tensor, z: Tensor) -> None:
        """Require that examples [n, ...] erased together have equal class moments of every promised order.

        Raises:
            BrokenGuaranteeError: the gap of an order is too large.
        """
        x, r = erased.to(self.mean.device), [self.directions]
        (spectrum,) = order_spectrum(x, z, directions=r, orders=self.order, most=len(z))
        for order, gap in enumerate(spectrum.gaps.tolist(), start=1):
            if not gap <= _LARGEST_GAP:
                remedy = f"lower directions={self.directions}" if order > 2 else f"raise weights={list(self.weights)}"
                raise BrokenGuaranteeError(
                    f"{type(self).__name__} promises equal class moments of order {order}, but the gap on the erased "
                    f"examples is {gap:.1e} of the energy in {spectrum.directions} directions, above "
                    f"{_LARGEST_GAP:.0e}: "
                    f"raise max_iterations={self.max_iterations} or {remedy}"
                )

    def _set_targets(self, moments: ClassMoments) -> Self:
        super()._set_targets(moments)
        values, vectors = self.eigenvalues.flip(0).clamp(min=0), self.eigenvectors.flip(1)
        damped = values + _FLOOR * float(moments.total.trace())
        self.whitening, self.variances = vectors / damped.sqrt(), values / damped
        return self

    def _target(self, moments: ClassMoments) -> Tensor:
        self.start = QleaceEraser.from_moments(moments, tolerance=1e-6)
        return self.start.maps[0].T @ moments.covariance(0) @ self.start.maps[0]  # the same for every class

    def _moved(self, x: Tensor, z: Tensor) -> Tensor:
        if not len(x):
            return x.clone()
        original = x.to(device=self.mean.device, dtype=torch.promote_types(x.dtype, torch.float32))
        z = z.to(self.mean.device)
        start = self.start(original, z)
        if self.range is not None:
            start = start.clamp(*self.range.to(original))
        loss = _Loss(self, original, [(z == j).nonzero().squeeze(1) for j in z.unique().tolist()])
        title = f"gradient erasure of {len(x):,} examples to order {self.order}"

        def show(iteration: int, loss: float) -> None:
            report_progress(title, iteration / self.max_iterations, f"iteration {iteration}: loss {loss:.3g}")

        moved = self._minimise(loss, start, show)
        return made_constant(moved, self.constant, moved.mean(0)).to(x)  # rounding would tell the class


class _Loss:
    """n times the loss of examples [n, d] and its gradient; `members` are the positions of each class."""

    def __init__(self, eraser: GradientOrdersEraser, original: Tensor, members: Sequence[Tensor]) -> None:
        self.eraser, self.original, self.members = eraser, original, members
        self.mean, self.whitening = eraser.mean.to(original), eraser.whitening.to(original)
        self.target = eraser.variances.to(original).diag()
        self.size = float(eraser.variances.sum())
        r = min(eraser.directions, len(eraser.mean))
        normal = [math.comb(r + p - 1, p) for p in range(1, eraser.order + 1)]  # E k_p(y, y)
        self.by_third = eraser.order_weight / normal[2] / math.factorial(3)
        self.weights = [eraser.order_weight / energy if p > 3 else 0.0 for p, energy in enumerate(normal, start=1)]

    def __call__(self, x: Tensor) -> tuple[float, Tensor]:
        by_edit = self.eraser.weights[2] / self.eraser.scales[0]
        edit = x - self.original
        y = (x - self.mean) @ self.whitening
        value, slope = self._lower(y)
        value += by_edit * edit.double().square().sum()
        leading = y[:, : self.eraser.directions].contiguous()
        for of_order in (self._third, self._higher)[: self.eraser.order - 2]:
            more, by_leading = of_order(leading)
            value += more
            slope[:, : leading.shape[1]] += by_leading
        return float(value), torch.addmm(edit, slope, self.whitening.T, beta=2 * by_edit)

    def _lower(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of orders one and two, in all directions [n, d], and its gradient."""
        by_mean, by_covariance = self.eraser.weights[0] / self.size, self.eraser.weights[1] / self.size**2
        value, slope = y.new_zeros((), dtype=torch.float64), torch.empty_like(y)
        for rows in self.members:
            mean, excess, slope[rows] = moment_gaps(y[rows], 0.0, self.target, by_mean, by_covariance)
            value += len(rows) * by_mean * mean.double().square().sum()
            value += len(rows) * by_covariance * excess.double().square().sum()
        return value, slope

    def _third(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of order three in the leading directions [n, r], and its gradient."""
        value, slope = y.new_zeros((), dtype=torch.float64), torch.empty_like(y)
        means = [third_mean(y[rows]) for rows in self.members]
        sizes = [len(rows) for rows in self.members]
        centre = sum(mean * (size / len(y)) for mean, size in zip(means, sizes, strict=True))  # its gradient is zero
        for rows, mean in zip(self.members, means, strict=True):
            excess = mean - centre
            value += len(rows) * self.by_third * excess.double().square().sum()
            slope[rows] = third_slope(y[rows], excess).mul_(2 * self.by_third)
        return value, slope

    def _higher(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return loss and gradient of orders above three, by kernels: Σ_j λ_j ‖μ_j - μ‖² = Σ_j λ_j ‖μ_j‖² - ‖μ‖²."""
        value, slope = kernel_sum(y, y, self.weights)
        value *= -1 / len(y)
        slope *= -2 / len(y)
        for rows in self.members:
            within, by_within = kernel_sum(y[rows], y[rows], self.weights)
            value += within / len(rows)
            slope[rows] += by_within.mul_(2 / len(rows))
        return value, slope
