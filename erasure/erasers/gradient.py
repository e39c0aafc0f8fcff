"""Gradient-based moment erasure: images are optimised until their class moments nearly agree."""

import copy
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from erasure.barycenter_search import align, reported_classes
from erasure.covariance_factor import CovarianceFactor
from erasure.inputs import whole_number
from erasure.moments import ClassMoments
from erasure.polar import gram
from erasure.predictability import linear_prediction
from erasure.progress import report_progress
from erasure.projection_eraser import made_constant
from erasure.relaxed_transport import relaxed_transport
from erasure.transductive_eraser import TransductiveEraser
from erasure.zscore import Preprocessing

log = logging.getLogger(__name__)

_ROUNDS = 10  # of the relaxed transport from which L-BFGS starts
_ORDINARY = 2.0**-6, 2.0**10  # standard deviations for which L-BFGS in float32 neither under- nor overflows
_MARGIN = 1e-3  # distance of the start from the ends of the range, relative to it; a sigmoid has no slope at the ends
_MOST_LEFT = 2  # times what shuffled labels would let a linear prediction explain
_LEAST_EDIT = 1e-6  # least weight of the edit, relative to the largest weight; it selects the nearest solution


@dataclass(kw_only=True, repr=False)
class GradientEraser(TransductiveEraser):
    """Images optimised class by class, kept in range by a sigmoid (Quirke & Belrose 2025, section 2.4).

    The loss of class j, with each term relative to the training data, is

        w_mean ‖m_j - m̄‖² / tr Σ_xx  +  w_cov ‖Σ_j - Σ*‖²_F / ‖Σ_xx‖²_F  +  w_edit E‖x' - x‖² / tr Σ_xx

    with targets from the training split: the mean m̄ and the Bures-Wasserstein barycenter Σ* of the class covariances,
    the covariance that is nearest to all of them and so allows a small edit. Since the targets are fixed, classes are
    optimised one by one, which limits the memory.

    Without a range, an affine map per class minimises this loss (`erasure.relaxed_transport`). L-BFGS starts from its
    images.

    The method is transductive: there is no map to reuse, and a call optimises all its examples together
    (`TransductiveEraser`).

    Args:
        weights: w_mean, w_cov and w_edit; the default was tuned on CIFAR-10, pixels in 0..1.
        max_iterations: maximum number of iterations of L-BFGS per class.
        history: number of pairs of vectors that L-BFGS keeps, each twice as large as the images of a class.
        low: lower end of the range of admissible values, such as 0 for pixels; None for no range. For z-scored data,
            `rescale_range` transforms the range.
        high: upper end of the range; None for no range.

    Raises:
        ValueError: a negative or infinite weight, all zero, an empty or infinite range, or one end without the other.

    Example:
        >>> import torch
        >>> from erasure import GradientEraser
        >>> x, z = torch.rand(40, 5, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
        >>> eraser = GradientEraser(low=0.0, high=1.0)
        >>> erased = eraser.fit_transform(x, z)
        >>> bool((erased[z == 0].mean(0) - erased[z == 1].mean(0)).abs().max() < 0.01), bool(erased.min() >= 0)
        (True, True)
    """

    weights: tuple[float, float, float] = (150.0, 24.0, 1.0)
    max_iterations: int = 50
    history: int = 10
    low: float | None = None
    high: float | None = None
    mean: Tensor = field(init=False, repr=False)
    num_classes: int = field(init=False)
    range: Tensor | None = field(init=False, repr=False)  # its ends, [2, 1] or [2, d]
    covariance: Tensor = field(init=False, repr=False)  # Σ*, [d, d]
    eigenvalues: Tensor = field(init=False, repr=False)  # of Σ*, ascending, [d]
    eigenvectors: Tensor = field(init=False, repr=False)  # [d, d]
    scales: tuple[float, float] = field(init=False, repr=False)  # tr Σ_xx, ‖Σ_xx‖²_F
    constant: tuple[int, ...] = field(default=(), init=False, repr=False)  # coordinates without variance within classes
    version = 5

    def __post_init__(self) -> None:
        for name in ("max_iterations", "history"):
            whole_number(getattr(self, name), name)
        if not all(0 <= weight < math.inf for weight in self.weights) or max(self.weights) == 0:
            raise ValueError(f"weights={list(self.weights)}: none may be negative or infinite, and not all zero")
        if min(self.max_iterations, self.history) < 1:
            raise ValueError(f"max_iterations={self.max_iterations}, history={self.history}: must be at least 1")
        self.range = None
        if self.low is not None and self.high is not None:
            if not self.low < self.high:
                raise ValueError(f"low={self.low}, high={self.high}: an empty range")
            if math.inf in (-self.low, self.high):
                raise ValueError(f"low={self.low}, high={self.high}: give finite ends, or none")
            self.range = torch.tensor([[self.low], [self.high]], dtype=torch.float64)
        elif self.low is not self.high:
            raise ValueError(f"low={self.low}, high={self.high}: give both, or neither for no range")

    def on_scale(self, preprocessing: Preprocessing) -> Self:
        moved = copy.copy(self)
        if not preprocessing.bounded:
            moved.range = None  # every value is possible
        if (scaling := preprocessing.scaling) is not None:
            moved.rescale_range(scaling.scale.flatten(), scaling.shift.flatten())
        return moved

    def rescale_range(self, scale: Tensor, shift: Tensor) -> None:
        """Transform the admissible range of x to that of scale · x + shift, both [d]."""
        if self.range is not None:
            self.range = self.range.to(scale) * scale + shift

    @classmethod
    def require_options(cls, **options: Any) -> None:
        cls(**options)

    @classmethod
    def from_moments(cls, moments: ClassMoments, **options: Any) -> Self:
        """Return an eraser with targets from these moments; the options are those of the constructor."""
        return cls(**options)._set_targets(moments)

    @classmethod
    def matrices(cls, num_classes: int) -> float:
        return 13.0 + 2.1 * num_classes

    def fit_transform(self, x: Tensor, z: Tensor) -> Tensor:
        """Set the targets from `x` [n, ...], and return it optimised, in the same shape and dtype."""
        self._set_targets(ClassMoments.fit(x, z))
        return self(x, z)

    def erase_together(self, x: Tensor, z: Tensor) -> Tensor:
        """Optimise examples [n, d], in their precision, at least float32."""
        self._require_in_range(x)
        moved = self._moved(x, z)
        self._warn_of_rest(moved, z)
        return moved

    def _warn_of_rest(self, erased: Tensor, z: Tensor) -> None:
        """Log a warning if the edit's weight leaves class means that a linear prediction finds."""
        if self.range is not None or not self.weights[0]:
            return
        moments = ClassMoments(erased.shape[1], self.num_classes, device=self.mean.device, pooled=True)
        left = linear_prediction(moments.update(erased, z), erased.dtype) if len(erased) else None
        if left is not None and left.r2 > _MOST_LEFT * left.chance:
            log.warning(
                "%s leaves part of the class means, which explain %.2g of the labels' variance linearly (%.2g for "
                "shuffled labels): raise the first of weights=%s",
                *(type(self).__name__, left.r2, left.chance, list(self.weights)),
            )

    def _moved(self, x: Tensor, z: Tensor) -> Tensor:
        """Optimise examples [n, d] class by class.

        Coordinates that are constant within every class of the fit are set to their means: whatever L-BFGS leaves of
        their distance from these, or from the end of a range, tells the class.
        """
        erased = torch.empty_like(x)
        classes = z.unique().tolist()
        for i, j in enumerate(classes):
            rows = (z == j).nonzero().squeeze(1).to(x.device)
            images = x[rows].to(self.mean.device, torch.promote_types(x.dtype, torch.float32))

            def show(iteration: int, loss: float, i: int = i, j: int = j) -> None:
                done = min(1.0, (i + iteration / self.max_iterations) / len(classes))
                detail = f"class {j}, iteration {iteration}: loss {loss:.3g}"
                report_progress(f"gradient erasure of {len(x):,} examples", done, detail)

            erased[rows] = self._optimised(images, show).to(erased)
        return made_constant(erased, self.constant, self.mean.to(erased))

    def _optimised(self, images: Tensor, show: Callable[[int, float], None]) -> Tensor:
        """Erase one class's examples [n, d]; `show` reports an iteration and its loss."""
        mean, covariance = self.mean.to(images), self.covariance.to(images)
        loss = partial(self._loss, original=images, mean=mean, covariance=covariance)
        return self._minimise(loss, self._start(images), show)

    def _start(self, x: Tensor) -> Tensor:
        """Return examples [n, d] of one class that nearly minimise the loss without a range."""
        (by_mean, by_covariance, by_edit), (variance, square) = self.weights, self.scales
        by_edit = max(by_edit, _LEAST_EDIT * max(self.weights))
        weights = by_mean / by_edit, by_covariance / square * variance / by_edit
        return relaxed_transport(x, self.mean, (self.eigenvalues, self.eigenvectors), *weights, max_rounds=_ROUNDS)

    def _set_targets(self, moments: ClassMoments) -> Self:
        moments.require_examples()
        total = moments.total
        std = math.sqrt(float(total.trace()) / len(total))
        if not std > 0:
            raise ValueError("all examples are alike: there is nothing to erase")
        if not _ORDINARY[0] <= std < _ORDINARY[1]:
            raise ValueError(
                f"the standard deviation of x is {std:.1e}: multiply x by a number that brings it near 1, or "
                "standardise its coordinates"
            )
        varying = moments.within if self.weights[0] else total
        constant = varying.diagonal() <= 10 * len(total) * torch.finfo(total.dtype).eps * total.diagonal()
        self.constant = tuple(constant.nonzero().flatten().tolist())
        self.mean, self.num_classes, self.covariance = moments.mean, moments.num_classes, self._target(moments)
        self.eigenvalues, self.eigenvectors = torch.linalg.eigh(self.covariance)
        self.scales = float(total.trace()), float(total.square().sum())
        return self

    def _target(self, moments: ClassMoments) -> Tensor:
        classes = reported_classes(moments.num_classes)
        factors = [CovarianceFactor(moments.covariance(j), moments.means[j], epsilon=moments.epsilon) for j in classes]
        root = align(factors, moments.weights.tolist(), moments.within, tolerance=1e-6).root
        return root @ root.T

    def _require_in_range(self, x: Tensor) -> None:
        if self.range is not None and not contains(self.range.to(x), x):
            raise ValueError(
                f"x has values from {float(x.min()):.4g} to {float(x.max()):.4g}, outside the range "
                f"low={self.low:g} to high={self.high:g}: widen it, or leave it out for no range"
            )

    def _minimise(
        self, loss: Callable[[Tensor], tuple[float, Tensor]], start: Tensor, show: Callable[[int, float], None]
    ) -> Tensor:
        """Minimise `loss`, which returns n times a mean and its gradient, over examples [n, d] within the range."""
        ends = None if self.range is None else self.range.to(start)
        u = (start.clone() if ends is None else free(ends, start)).requires_grad_()
        optimizer = torch.optim.LBFGS(
            [u], max_iter=self.max_iterations, max_eval=2 * self.max_iterations, history_size=self.history,
            tolerance_grad=0.0, tolerance_change=0.0, line_search_fn="strong_wolfe",
        )  # fmt: skip
        evaluations = 0

        @torch.no_grad()
        def closure() -> float:
            nonlocal evaluations
            evaluations += 1
            x, unit = (u, u) if ends is None else values(ends, u)
            value, u.grad = loss(x)
            if ends is not None:
                pull_back(ends, u.grad, unit)
            show(min(evaluations, self.max_iterations), value / len(start))
            return value

        optimizer.step(closure)  # pyright: ignore[reportArgumentType]
        return u.detach() if ends is None else values(ends, u.detach())[0]

    def _loss(self, x: Tensor, original: Tensor, mean: Tensor, covariance: Tensor) -> tuple[float, Tensor]:
        """Return n times the loss of one class with these target moments, and its gradient by the examples [n, d]."""
        n = len(x)
        variance, square = self.scales
        by_mean, by_covariance, by_edit = self.weights
        shift, excess, slope = moment_gaps(x, mean, covariance, by_mean / variance, by_covariance / square)
        edit = x - original
        moved, spread, edited = torch.stack([part.double().square().sum() for part in (shift, excess, edit)]).tolist()
        value = by_mean / variance * n * moved + by_covariance / square * n * spread + by_edit / variance * edited
        return value, slope.add_(edit, alpha=2 * by_edit / variance)


def moment_gaps(
    x: Tensor, mean: Tensor | float, covariance: Tensor, by_mean: float, by_covariance: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the differences of mean and covariance of examples [n, d] from targets, and the gradient of their loss.

    The gradient is n ∂/∂x (by_mean ‖shift‖² + by_covariance ‖excess‖²_F).
    """
    centre = x.mean(0)
    centred = x - centre
    shift, excess = centre - mean, gram(centred) / len(x) - covariance
    slope = torch.mm(centred, excess).mul_(4 * by_covariance)
    return shift, excess, slope.add_(shift, alpha=2 * by_mean)


def contains(ends: Tensor, x: Tensor) -> bool:
    """Return whether all values of `x` [n, d] lie in a range [2, 1] or [2, d], up to rounding."""
    low, high = ends
    slack = 4 * torch.finfo(x.dtype).eps * torch.maximum(low.abs(), high.abs())
    return not bool(((x < low - slack) | (x > high + slack)).any())


def free(ends: Tensor, x: Tensor) -> Tensor:
    """Return unconstrained numbers [n, d] whose sigmoid gives `x` in a range, moved slightly off its ends."""
    low, high = ends
    return ((x - low) / (high - low)).clamp(_MARGIN, 1 - _MARGIN).logit()


def values(ends: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values of unconstrained numbers, and their positions in the range, 0 to 1."""
    low, high = ends
    unit = u.sigmoid()
    return (low + (high - low) * unit).clamp(low, high), unit


def pull_back(ends: Tensor, gradient: Tensor, unit: Tensor) -> Tensor:
    """Turn the gradient with respect to values into one with respect to unconstrained numbers, in place."""
    return gradient.mul_(unit).mul_(1 - unit).mul_(ends[1] - ends[0])
