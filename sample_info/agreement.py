"""Correlations of scores, and their agreement with references."""

from collections.abc import Mapping

import torch
from torch import Tensor

from sample_info.leave_one_out_effects import Changes
from sample_info.result import Correlation, Ratio, ReferenceAgreement


def agreement(ours: Changes, theirs: Changes) -> ReferenceAgreement:
    """Correlate weight and prediction changes over the examples that both estimates cover."""
    both = ~(ours.weight.isnan() | theirs.weight.isnan())
    return ReferenceAgreement(
        examples=int(both.sum()),
        weight=_correlation(ours.weight[both], theirs.weight[both]),
        prediction=_correlation(ours.prediction[both], theirs.prediction[both]),
    )


def with_references(ours: Changes, references: Mapping[str, Changes]) -> dict[str, ReferenceAgreement]:
    """Compare, by name, our scores with each reference, and each other reference with retraining."""
    agreements = {name: agreement(ours, reference) for name, reference in references.items()}
    if (truth := references.get("retraining")) is not None:
        others = {name: reference for name, reference in references.items() if name != "retraining"}
        agreements |= {f"{name} with retraining": agreement(reference, truth) for name, reference in others.items()}
    return agreements


def _correlation(a: Tensor, b: Tensor) -> Correlation:
    """Correlate a and b; add median, smallest and largest a / b for b > 0, as few values dominate a correlation."""
    ratios = a[b > 0] / b[b > 0]
    ratio = None
    if len(ratios):
        ratio = Ratio(median=median(ratios), least=float(ratios.min()), largest=float(ratios.max()))
    return Correlation(pearson=pearson(a, b), spearman=spearman(a, b), ratio=ratio)


def pearson(a: Tensor, b: Tensor) -> float | None:
    """Return Pearson's correlation of a and b, [n]; None if one of them is constant, or n < 2."""
    if len(a) < 2 or not (float(a.std()) > 0 and float(b.std()) > 0):
        return None
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


def spearman(a: Tensor, b: Tensor) -> float | None:
    """Return Spearman's rank correlation of a and b, [n]."""
    return pearson(ranks(a), ranks(b))


def median(values: Tensor) -> float:
    """Return the median of values [n], between the middle two if n is even, which `Tensor.median` is not."""
    return float(values.quantile(0.5))


def auroc(scores: Tensor, positive: Tensor) -> float | None:
    """Return the probability that a positive example scores above a negative one; None if all or none are positive."""
    p = int(positive.sum())
    if p in (0, len(scores)):
        return None
    return float((ranks(scores)[positive].sum() - p * (p + 1) / 2) / (p * (len(scores) - p)))


def ranks(values: Tensor) -> Tensor:
    """Return ranks, starting at 1, of values [n] or of each column [n, q]; ties get their mean rank."""
    from scipy.stats import rankdata  # imported here so that launches of finished runs start fast

    return torch.from_numpy(rankdata(values.numpy(), axis=0))
