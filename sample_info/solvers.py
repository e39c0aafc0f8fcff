"""Two ways to apply the inverse of a curvature that is only known by its products."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sample_info.curvature import Product, SquaredLoss

log = logging.getLogger(__name__)


class Solver(Protocol):
    """Applies the inverse of a loss's curvature."""

    def solve(self, loss: SquaredLoss, weight_decay: float, b: Tensor) -> Tensor:
        """Rows v [m, P] with (curvature of the summed loss + λ + damping) v = b, as well as the method can."""
        ...


@dataclass(frozen=True, kw_only=True)
class ConjugateGradients:
    """Conjugate gradients on the damped Gauss-Newton matrix Jᵀ J + (λ + damping) I of the summed loss.

    Attributes:
        damping: added to the matrix; the paper takes 0.01 where λ = 0, without which there is no inverse.
        tolerance: of the residual, relative to the right-hand side.
        max_iterations: after which it stops with a warning that names the residual.

    Raises:
        ValueError: an option out of range.
    """

    damping: float = 0.01
    tolerance: float = 1e-6
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        if not 0 <= self.damping < math.inf or not 0 < self.tolerance < 1 or self.max_iterations < 1:
            raise ValueError(
                f"damping={self.damping}, tolerance={self.tolerance}, max_iterations={self.max_iterations}: need "
                "no negative damping, a tolerance between 0 and 1, at least one iteration"
            )

    def solve(self, loss: SquaredLoss, weight_decay: float, b: Tensor) -> Tensor:
        shift = weight_decay + self.damping
        if shift <= 0:
            raise ValueError("damping=0 without weight decay: Jᵀ J has no inverse with more parameters than outputs")
        curvature = loss.gauss_newton()
        return conjugate_gradients(lambda v: curvature(v) + shift * v, b, self.tolerance, self.max_iterations)


@torch.no_grad()
def conjugate_gradients(product: Product, b: Tensor, tolerance: float, max_iterations: int) -> Tensor:
    """A⁻¹ b for each row of b [m, P], A symmetric positive definite; every row has its own iteration."""
    v, residual = torch.zeros_like(b), b.clone()
    direction, square = b.clone(), b.square().sum(1)
    goal = tolerance**2 * square
    for _ in range(max_iterations):
        if not (square > goal).any():
            return v
        image = product(direction)
        curvature = (direction * image).sum(1)
        length = torch.where(square > goal, square / curvature, 0.0)[:, None]  # rows that are done stay
        v += length * direction
        residual -= length * image
        before, square = square, residual.square().sum(1)
        direction = residual + torch.where(before > 0, square / before, 0.0)[:, None] * direction
    worst = float((square / (goal / tolerance**2).clamp(min=torch.finfo(b.dtype).tiny)).max().sqrt())
    if worst > tolerance:
        log.warning(
            "conjugate gradients stopped after %d iterations at a relative residual of %.1e, above %.1e: raise damping "
            "or max_iterations", max_iterations, worst, tolerance,
        )  # fmt: skip
    return v


@dataclass(frozen=True, kw_only=True)
class Lissa:
    """The truncated Neumann series of Agarwal et al. 2017, as Koh & Liang 2017 and the paper (table 2) use it.

    With H the Hessian of the *mean* loss, (1/n) Σ_i ½‖f(x_i) - y_i‖² + (λ/n)/2 ‖w - w_0‖²,

        h ← v + (1 - damping) h - H h / scale,    starting at h = v,

    and h / scale is the answer. What it converges to is (H + damping · scale)⁻¹ v: with the paper's damping of 0.01 and
    scale of 1,000 that adds 10 to the curvature of the mean loss.

    Attributes:
        steps: of the recursion.
        scale: must exceed half the largest eigenvalue of H.
        damping: see above.
        batch_size: examples on which each step's product is taken; None for all.
        seed: of the batches.

    Raises:
        ValueError: an option out of range, or a recursion that diverges.
    """

    steps: int = 1000
    scale: float = 1000.0
    damping: float = 0.01
    batch_size: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 < self.scale < math.inf or not 0 <= self.damping < 1:
            raise ValueError(
                f"steps={self.steps}, scale={self.scale}, damping={self.damping}: need at least one step, a positive "
                "scale, a damping in [0, 1)"
            )
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size}: must be at least 1, or None for all examples")

    @torch.no_grad()
    def solve(self, loss: SquaredLoss, weight_decay: float, b: Tensor) -> Tensor:
        n = len(loss.x)
        products = self._products(loss)
        h = b.clone()
        for _ in range(self.steps):
            mean_curvature = products()(h) + weight_decay / n * h
            h = b + (1 - self.damping) * h - mean_curvature / self.scale
        if not h.isfinite().all():
            raise ValueError(f"LiSSA diverged: raise scale={self.scale:g} above half the largest eigenvalue")
        return h / self.scale / n  # of the summed loss, whose curvature is n times as large

    def _products(self, loss: SquaredLoss) -> Callable[[], Product]:
        n = len(loss.x)
        size = n if self.batch_size is None else min(self.batch_size, n)
        generator = torch.Generator().manual_seed(self.seed)

        def of_rows(rows: Tensor | None, count: int) -> Product:
            curvature = loss.hessian(rows)
            return lambda v: curvature(v) / count

        if size == n:
            everything = of_rows(None, n)
            return lambda: everything
        return lambda: of_rows(torch.randperm(n, generator=generator)[:size].to(loss.x.device), size)
