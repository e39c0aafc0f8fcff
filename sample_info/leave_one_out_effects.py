"""Effects of leaving out examples or sets on weights, outputs and losses, and the resulting information measures."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Changes:
    """Changes by leaving out each of n examples or sets; float64, NaN if not computed."""

    weight: Tensor  # ‖w - w_-i‖², [n]
    prediction: Tensor  # mean over held-out inputs of ‖f(x) - f_-i(x)‖², [n]

    @classmethod
    def joined(cls, parts: Iterable["Changes"]) -> Self:
        every = [*parts]
        return cls(*(torch.cat([getattr(one, f.name) for one in every]) for f in fields(cls)))

    def among(self, n: int, which: Tensor) -> Self:
        """Return changes of n examples, with these changes at the positions `which` and NaN elsewhere."""
        parts = [getattr(self, f.name) for f in fields(self)]
        return type(self)(*(part.new_full((n, *part.shape[1:]), math.nan).index_put((which,), part) for part in parts))


@dataclass(frozen=True)
class Effects(Changes):
    """Changes, and signed differences of the outputs."""

    outputs: Tensor  # f(x) - f_-i(x) on m held-out inputs, [n, m, k]

    @classmethod
    def along(cls, coefficients: Tensor, kernel: Tensor, held_out_kernel: Tensor, k: int) -> Self:
        """Return effects of b changes ∇f(X) a of the weights; the vectors a are the columns of `coefficients` [n k, b].

        The kernel is [n k, n k], and the kernel of held-out inputs is [m k, n k].
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
    """Return ℓ(f(x)) - ℓ(f_-i(x)), [b, m], for ℓ = ½‖f - y‖²; negative if an example helps.

    `outputs` [b, m, k] are those of `Effects`; `trained`, which is f(x), and targets y are [m, k].
    """
    return torch.einsum("bmk,mk->bm", outputs, trained - y) - outputs.square().sum(-1) / 2


def functional_information(changes: Changes, sigma: float) -> Tensor:
    """Return F-SI_σ in nats, [n]: the mean of ‖f(x) - f_-i(x)‖² / (2σ²), with noise σ on every output (equation 8).

    Equation 16 prints the norm without the square of equation 8.
    """
    return changes.prediction / (2 * sigma**2)


def weight_information(changes: Changes, sigma: float) -> Tensor:
    """Return SI_Σ for Σ = σ²I in nats, [n]: ‖w - w_-i‖² / (2σ²), with noise σ on every weight (equation 5)."""
    return changes.weight / (2 * sigma**2)
