"""Gradient erasure of the paper's code, which starts from LEACE and minimises norms instead of their squares."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from erasure.erasers.gradient import GradientEraser
from erasure.erasers.leace import LeaceEraser
from erasure.erasers.qleace_truncated import shrunk
from erasure.moments import ClassMoments
from erasure.torch_modes import default_modes

log = logging.getLogger(__name__)


@dataclass(kw_only=True, repr=False)
class PublishedGradientEraser(GradientEraser):
    """A reproduction of the gradient erasure in the paper's code, which stops before class covariances are equal.

    The script behind Quirke & Belrose 2025 applies LEACE, clamps pixels y to [ε, 1 - ε], and minimises for each class

        w_mean ‖m_j - m̄‖  +  w_cov ‖Σ_j - Σ*‖_F  +  w_edit mean (y' - y)²

    by L-BFGS with the default tolerances of PyTorch. One of them stops as soon as no derivative is above 1e-7, which
    happens after ten to twenty of a hundred iterations on CIFAR-10. Σ* is the shrunk covariance of all images after
    LEACE, with entries clamped to [ε, 1 - ε]. Use `GradientEraser` unless you study this effect.

    Args:
        weights: w_mean, w_cov and w_edit for pixels between 0 and 1, whatever the scaling of the examples.
        max_iterations: maximum number of iterations of L-BFGS per class.
        history: number of pairs of vectors that L-BFGS keeps.
        low: value of a black pixel.
        high: value of a white pixel.

    Raises:
        ValueError: as `GradientEraser`, or examples without a range.

    Example:
        >>> import torch
        >>> from erasure import PublishedGradientEraser
        >>> x, z = torch.rand(40, 5, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
        >>> erased = PublishedGradientEraser().fit_transform(x, z)
        >>> bool((erased[z == 0].mean(0) - erased[z == 1].mean(0)).abs().max() < 0.01)
        True
    """

    weights: tuple[float, float, float] = (0.01, 0.01, 1.0)
    max_iterations: int = 100
    history: int = 100
    low: float | None = 0.0
    high: float | None = 1.0
    leace: LeaceEraser = field(init=False, repr=False)
    n: int = field(init=False, repr=False)  # number of examples of the fit, which determines the shrinkage of Σ*
    version = 1

    @classmethod
    def matrices(cls, num_classes: int) -> float:
        return LeaceEraser.matrices(num_classes) + 4.0

    def _set_targets(self, moments: ClassMoments) -> Self:
        moments.require_examples()
        self.mean, self.num_classes, self.n = moments.mean, moments.num_classes, moments.n
        self.leace = LeaceEraser.from_moments(moments)
        projection = torch.eye(moments.dim).to(moments.mean) - self.leace.left @ self.leace.right
        self.covariance = projection @ moments.total @ projection.T * (moments.n / (moments.n - 1))
        return self

    @default_modes()
    def _optimised(self, images: Tensor, show: Callable[[int, float], None]) -> Tensor:
        if self.range is None:
            raise ValueError(
                "PublishedGradientEraser keeps pixels between black and white, and these examples have no such range: "
                "use GradientEraser"
            )
        low, high = self.range.to(images)
        width = (high - low).expand(images.shape[1])
        eps = torch.finfo(images.dtype).eps
        original = ((self.leace(images) - low) / width).clamp(eps, 1 - eps)
        mean = ((self.mean.to(images) - low) / width).clamp(eps, 1 - eps)
        covariance = shrunk(self.covariance.to(images) / (width[:, None] * width), self.n).clamp(eps, 1 - eps)
        by_mean, by_covariance, by_edit = self.weights
        u = original.logit().requires_grad_()
        optimizer = torch.optim.LBFGS(
            [u], max_iter=self.max_iterations, history_size=self.history, line_search_fn="strong_wolfe"
        )

        def closure() -> float:
            optimizer.zero_grad()
            y = u.sigmoid()
            gap = (y.T.cov(correction=min(1, len(y) - 1)) - covariance).norm()  # one example has a covariance of 0
            loss = by_mean * (y.mean(0) - mean).norm() + by_covariance * gap
            loss = loss + by_edit * (y - original).square().mean()
            loss.backward()
            value = float(loss.detach())
            show(optimizer.state[u].get("n_iter", 0), value)
            return value

        optimizer.step(closure)  # pyright: ignore[reportArgumentType]
        log.info("L-BFGS ended after %d of %d iterations", optimizer.state[u]["n_iter"], self.max_iterations)
        return low + width * u.detach().sigmoid()
