"""Effects of leaving out examples, or sets of them, on weights, outputs and losses, and the information in them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Changes:
    """Changes by leaving out each of n examples or sets; float64, NaN where not computed."""

    weight: Tensor  # ‖w - w_-i‖², [n]
    prediction: Tensor  # mean over held-out inputs of ‖f(x) - f_-i(x)‖², [n]

    @classmethod
    def joined(cls, parts: Iterable["Changes"]) -> Self:
        every = [*parts]
        return cls(*(torch.cat([getattr(one, f.name) for one in every]) for f in fields(cls)))

    def among(self, n: int, which: Tensor) -> Self:
        """Return changes of n examples: these at the positions `which`, NaN elsewhere."""
        parts = [getattr(self, f.name) for f in fields(self)]
        return type(self)(*(part.new_full((n, *part.shape[1:]), math.nan).index_put((which,), part) for part in parts))


@dataclass(frozen=True)
class Effects(Changes):
    """Changes, and signed differences of the outputs."""

    outputs: Tensor  # f(x) - f_-i(x) of m held-out inputs, [n, m, k]

    @classmethod
    def along(cls, coefficients: Tensor, kernel: Tensor, held_out_kernel: Tensor, k: int) -> Self:
        """Return effects of b changes of the weights ∇f(X) a, a the columns [n k, b] of `coefficients`.

        The kernels are [n k, n k], and [m k, n k] for held-out inputs.
        """
        weight = (coefficients * (kernel @ coefficients)).sum(0).clamp(min=0)
        moved = held_out_kernel @ coefficients
        prediction = moved.square().sum(0) * (k / len(held_out_kernel))
        return cls(weight, prediction, moved.T.unflatten(1, (-1, k)))

    @property
    def changes(self) -> Changes:
        """The changes without outputs, on the CPU."""
        return Changes(self.weight.cpu(), self.prediction.cpu())


def loss_effects(outputs: Tensor, trained: Tensor, y: Tensor) -> Tensor:
    """ℓ(f(x)) - ℓ(f_-i(x)), [b, m], of ℓ = ½‖f - y‖²; below zero where an example helps.

    Outputs are those of `Effects`, [b, m, k]; `trained`, f(x), and targets y are [m, k].
    """
    return torch.einsum("bmk,mk->bm", outputs, trained - y) - outputs.square().sum(-1) / 2


def functional_information(changes: Changes, sigma: float) -> Tensor:
    """F-SI_σ in nats, [n]: mean ‖f(x) - f_-i(x)‖² / (2σ²), σ the noise on every output (equation 8).

    Equation 16 prints the norm without the square of equation 8.
    """
    return changes.prediction / (2 * sigma**2)


def weight_information(changes: Changes, sigma: float) -> Tensor:
    """SI_Σ with Σ = σ²I in nats, [n]: ‖w - w_-i‖² / (2σ²), σ the noise on every weight (equation 5)."""
    return changes.weight / (2 * sigma**2)
