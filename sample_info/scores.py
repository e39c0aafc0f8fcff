"""Scores in nats from what leaving an example out changes; docs/sample_info.md says what they mean.

All are Kullback-Leibler divergences: never negative, 0 for an example whose absence changes nothing, additive in
nothing. They grow with the square of the change, and fall with the square of the noise that defines them.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sample_info.dynamics import LinearizedDynamics
from sample_info.leave_one_out import LeaveOneOut


@dataclass(frozen=True)
class Changes:
    """What leaving each of n examples out of a training changes; NaN where it was not computed.

    Attributes:
        weight: ‖w - w_-i‖², [n] float64.
        prediction: mean over held-out inputs of ‖f(x) - f_-i(x)‖², [n] float64.
    """

    weight: Tensor
    prediction: Tensor

    @classmethod
    def of(cls, found: LeaveOneOut, n: int) -> "Changes":
        """Of some of n examples."""
        weight, prediction = (torch.full((n,), math.nan, dtype=torch.float64) for _ in range(2))
        weight[found.examples], prediction[found.examples] = found.weight_change, found.prediction_change
        return cls(weight, prediction)


def leave_one_out(dynamics: LinearizedDynamics, held_out_kernel: Tensor, *, memory_bytes: float = 2**30) -> Changes:
    """What leaving out each example changes in the linearised network, in column blocks that fit into memory."""
    blocks = [dynamics.changes(block, held_out_kernel) for block in dynamics.blocks(memory_bytes)]
    weight, prediction, _ = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    return Changes(weight, prediction)


def functional_information(changes: Changes, sigma: float) -> Tensor:
    """F-SI_σ in nats, [n]: mean ‖f(x) - f_-i(x)‖² / (2σ²), σ the noise on every output (equation 8).

    The square is that of equation 8; equation 16 prints it without.
    """
    return changes.prediction / (2 * _positive(sigma) ** 2)


def weight_information(changes: Changes, sigma: float) -> Tensor:
    """SI_Σ with Σ = σ²I in nats, [n]: ‖w - w_-i‖² / (2σ²), σ the noise on every weight (equation 5)."""
    return changes.weight / (2 * _positive(sigma) ** 2)


def bits(nats: Tensor) -> Tensor:
    return nats / math.log(2)


def _positive(sigma: float) -> float:
    if not 0 < sigma < math.inf:
        raise ValueError(f"sigma={sigma}: the smoothing noise must be a positive number")
    return sigma
