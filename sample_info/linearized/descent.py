"""Gradient descent on squared loss: its options, and its filter on the spectrum of the tangent kernel."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from conf.check import AtLeast1, Positive


@dataclass(frozen=True, kw_only=True)
class LinearizedDescent:
    """Full-batch gradient descent from w_0 on (1/n) [Σ_i ½ ‖f(x_i) - y_i‖² + ½ λ ‖w - w_0‖²].

    Without some examples their terms are missing, and n stays, as in the paper's equations.

    Args:
        learning_rate: η, of that mean loss, as in the paper's tables.
        steps: t; "converged" for the limit.
        weight_decay: λ towards w_0, on the scale of the sum, as in the paper.
    """

    learning_rate: Positive
    steps: AtLeast1 | Literal["converged"]
    weight_decay: Annotated[float, Field(ge=0)] = 0.0

    @property
    def t(self) -> float:
        """The number of steps."""
        return math.inf if self.steps == "converged" else float(self.steps)

    @property
    def finite(self) -> bool:
        """Whether training ends after finitely many steps."""
        return self.steps != "converged"

    def filter(self, eigenvalues: Tensor, n: int) -> Tensor:
        """Return φ_t(s) = (1 - (1 - ηs/n)^t) / s; its limit 1/s as t → ∞.

        w(t) = w_0 - ∇f_0(X) φ_t(Θ + λI) (f_0(X) - Y): equation 50, with the sign of its derivation, and discrete steps
        in place of its flow e^{-ηts/n}. The s are float64 eigenvalues of Θ + λI, or complex128 points in the upper half
        plane.
        """
        if not self.finite:
            return 1 / eigenvalues
        step = -self.learning_rate / n * eigenvalues
        if eigenvalues.is_complex():
            left = torch.expm1(self.t * torch.log1p(step))
        else:  # log1p keeps digits of small steps; below -1 the sign alternates
            small = torch.expm1(self.t * torch.log1p(step.clamp(min=-1)))
            left = torch.where(step > -1, small, (1 + step) ** self.t - 1)
        limit = self.t * self.learning_rate / n
        return torch.where(eigenvalues.abs() * limit < 1e-300, limit, -left / eigenvalues)

    def require_stable(self, largest: float, n: int) -> None:
        """Refuse steps that diverge if the largest eigenvalue of Θ, or a bound on it, is `largest`.

        Raises:
            ValueError: names the largest learning rate that is stable.
        """
        limit = 2 * n / (largest + self.weight_decay)
        if self.learning_rate >= limit:
            raise ValueError(
                f"learning_rate={self.learning_rate:g}: gradient descent diverges on this kernel from {limit:.3g} on "
                f"(2n over its largest eigenvalue and weight decay): lower it"
            )
