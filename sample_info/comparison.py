"""How well scores agree: with references, with wrong labels, with each other."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from scipy.stats import rankdata
from torch import Tensor

from sample_info.leave_one_out import LeaveOneOut
from sample_info.problem import Problem
from sample_info.scores import Changes

Reference = Callable[[Problem, Tensor], Iterator[LeaveOneOut]]  # leaves out the examples given, found some other way


def require_known(names: Sequence[str], references: Mapping[str, Reference]) -> None:
    """Refuse references that there are not.

    Raises:
        ValueError: names them, and those there are.
    """
    if unknown := [name for name in names if name not in references]:
        known = ", ".join(sorted(references)) or "none"
        raise ValueError(f"sample_info.references={list(names)}: there is no {unknown[0]}; choose from {known}")


def agreement(ours: Changes, theirs: Changes) -> dict[str, Any]:
    """Correlations of weight and prediction changes over the examples that both have.

    Returns:
        "weight" and "prediction", each with "pearson" and "spearman", and "examples", how many were compared.
    """
    found: dict[str, Any] = {"examples": int((~theirs.weight.isnan()).sum())}
    for name in ("weight", "prediction"):
        a, b = getattr(ours, name).cpu(), getattr(theirs, name).cpu().double()
        both = ~(a.isnan() | b.isnan())
        found[name] = {"pearson": pearson(a[both], b[both]), "spearman": spearman(a[both], b[both])}
    return found


def agreements_of(ours: Changes, references: Mapping[str, Changes]) -> dict[str, Any]:
    """Agreement of our scores with each reference, and of the others with retraining ("influence with retraining")."""
    found = {name: agreement(ours, reference) for name, reference in references.items()}
    if (truth := references.get("retraining")) is not None:
        others = {name: reference for name, reference in references.items() if name != "retraining"}
        found |= {f"{name} with retraining": agreement(reference, truth) for name, reference in others.items()}
    return found


def pearson(a: Tensor, b: Tensor) -> float | None:
    """Linear correlation of two [n]; None where one of them does not vary, or n < 2."""
    if len(a) < 2 or not (float(a.std()) > 0 and float(b.std()) > 0):
        return None
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


def spearman(a: Tensor, b: Tensor) -> float | None:
    """Rank correlation of two [n]."""
    return pearson(*(torch.from_numpy(rankdata(values.numpy())) for values in (a, b)))


def auroc(scores: Tensor, positive: Tensor) -> float | None:
    """Probability that a positive example [n, bool] scores above another; None where all are alike."""
    p = int(positive.sum())
    if p in (0, len(scores)):
        return None
    ranks = torch.from_numpy(rankdata(scores.numpy()))
    return float((ranks[positive].sum() - p * (p + 1) / 2) / (p * (len(scores) - p)))
