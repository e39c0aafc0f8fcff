"""How well scores agree: with references, with wrong labels, with each other."""

from collections.abc import Mapping
from typing import Any

import torch
from scipy.stats import rankdata
from torch import Tensor

from sample_info.changes import Changes


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


def ratio(a: Tensor, b: Tensor) -> dict[str, float] | None:
    """Median, least and largest of a / b over the examples where b > 0; None where there are none."""
    ratios = a[b > 0] / b[b > 0]
    if not len(ratios):
        return None
    return {name: float(value(ratios)) for name, value in _OF_RATIOS.items()}


_OF_RATIOS = {"median": torch.median, "least": torch.min, "largest": torch.max}


def agreements_of(ours: Changes, references: Mapping[str, Changes]) -> dict[str, Any]:
    """Agreement of our scores with each reference, and of the others with it ("influence 10 with retraining")."""
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
