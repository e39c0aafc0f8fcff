"""What leaving out one training example does to a network: what scores say, and references measure or estimate."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor

from sample_info.linearized.dynamics import LinearizedDynamics

Weights = dict[str, Tensor]  # parameter name -> values
Network = Callable[[Weights, Tensor], Tensor]  # f(w, x): inputs [n, ...] to outputs [n, k]


@dataclass(frozen=True)
class LeaveOneOut:
    """How far weights and predictions move when one training example is left out; float64, on the CPU.

    Attributes:
        examples: which were left out, one at a time, [m].
        weight_change: ‖w - w_-i‖² for each, [m].
        prediction_change: mean over test inputs x of ‖f_w(x) - f_w_-i(x)‖² for each, [m].
    """

    examples: Tensor
    weight_change: Tensor
    prediction_change: Tensor

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """One after another, at least one."""
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    @classmethod
    def from_json(cls, lists: Mapping[str, Any] | None) -> Self:
        """What `to_json` made; of None, no examples."""
        lists = lists or {field.name: [] for field in fields(cls)}
        changes = (torch.tensor(lists[name], dtype=torch.float64) for name in ("weight_change", "prediction_change"))
        return cls(torch.tensor(lists["examples"], dtype=torch.int64), *changes)

    def to_json(self) -> dict[str, list[Any]]:
        """Lists by name, all digits kept."""
        return {field.name: getattr(self, field.name).tolist() for field in fields(self)}

    def missing(self, examples: Tensor) -> Tensor:
        """Those of `examples` that are not among these, in order."""
        return examples[~torch.isin(examples, self.examples)]


def examples_to_leave_out(n: int, count: int | None, seed: int = 0) -> Tensor:
    """All of 0..n-1, or a random `count` of them in order, the same for every method that is compared.

    Raises:
        ValueError: more examples than there are, or none.
    """
    if count is None:
        return torch.arange(n)
    if not 0 < count <= n:
        raise ValueError(f"{count} examples to leave out: must lie between 1 and {n}, the training examples")
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:count].sort().values


def mean_square(change: Tensor) -> Tensor:
    """Mean over inputs of squared norms of changes of outputs [m, inputs, k]: float64 [m] on the CPU."""
    return change.double().square().sum(-1).mean(-1).cpu()


def check_targets(x: Tensor, y: Tensor) -> None:
    """Refuse targets that are not [n, k] floating.

    Raises:
        ValueError: says what they are.
    """
    if y.ndim != 2 or len(y) != len(x) or not y.is_floating_point():
        raise ValueError(
            f"targets {list(y.shape)} of type {y.dtype} for {len(x)} examples: need floating [{len(x)}, k], "
            "k = 1 for two classes"
        )


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
