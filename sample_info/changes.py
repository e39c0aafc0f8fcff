"""What leaving out one training example does to a network, what scores say of it, and how well two accounts agree."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor


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
    def from_json(cls, lists: Mapping[str, Sequence[float]] | None) -> Self:
        """What `to_json` made; of None, no examples."""
        lists = lists or {field.name: [] for field in fields(cls)}
        examples, *changes = (torch.tensor(lists[field.name], dtype=torch.float64) for field in fields(cls))
        return cls(examples.long(), *changes)

    def to_json(self) -> dict[str, list[float]]:
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


def agreement(ours: Changes, theirs: Changes) -> dict[str, Any]:
    """How well weight and prediction changes agree over the examples that both have.

    Returns:
        "weight" and "prediction", each with the correlations "pearson" and "spearman", and with "ratio": median, least
        and largest of ours / theirs, which a correlation, led by a few large values, does not show; and "examples", how
        many were compared.
    """
    both = ~(ours.weight.cpu().isnan() | theirs.weight.cpu().isnan())
    found: dict[str, Any] = {"examples": int(both.sum())}
    for name in ("weight", "prediction"):
        a, b = (getattr(changes, name).cpu().double()[both] for changes in (ours, theirs))
        found[name] = {"pearson": pearson(a, b), "spearman": spearman(a, b), "ratio": ratio(a, b)}
    return found


def agreements_of(ours: Changes, references: Mapping[str, Changes]) -> dict[str, Any]:
    """Agreement of our scores with each reference, and of the others with it ("influence 10 with retraining")."""
    found = {name: agreement(ours, reference) for name, reference in references.items()}
    if (truth := references.get("retraining")) is not None:
        others = {name: reference for name, reference in references.items() if name != "retraining"}
        found |= {f"{name} with retraining": agreement(reference, truth) for name, reference in others.items()}
    return found


def ratio(a: Tensor, b: Tensor) -> dict[str, float] | None:
    """Median, least and largest of a / b over the examples where b > 0; None where there are none."""
    ratios = a[b > 0] / b[b > 0]
    if not len(ratios):
        return None
    return {"median": float(ratios.median()), "least": float(ratios.min()), "largest": float(ratios.max())}


def pearson(a: Tensor, b: Tensor) -> float | None:
    """Linear correlation of two [n]; None where one of them does not vary, or n < 2."""
    if len(a) < 2 or not (float(a.std()) > 0 and float(b.std()) > 0):
        return None
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


def spearman(a: Tensor, b: Tensor) -> float | None:
    """Rank correlation of two [n]."""
    return pearson(_ranks(a), _ranks(b))


def auroc(scores: Tensor, positive: Tensor) -> float | None:
    """Probability that a positive example [n, bool] scores above another; None where all are alike."""
    p = int(positive.sum())
    if p in (0, len(scores)):
        return None
    return float((_ranks(scores)[positive].sum() - p * (p + 1) / 2) / (p * (len(scores) - p)))


def _ranks(values: Tensor) -> Tensor:
    from scipy.stats import rankdata  # imported where it is used: a launch that has nothing left to do is quick

    return torch.from_numpy(rankdata(values.numpy()))
