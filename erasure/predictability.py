"""R² of the best linear and quadratic predictions of labels or of another concept, independent of the data's scale."""

from dataclasses import dataclass

import torch
from torch import Tensor

from erasure.concept_moments import ConceptMoments
from erasure.moments import ClassMoments
from erasure.polar import gram

_MOST_FEATURES = 1000  # of degree two; the cost grows with the square of this number
_EXAMPLES_PER_FEATURE = 4  # with fewer, chance explains most of the labels
_ROWS_AT_ONCE = 4096
_EPS = torch.finfo(torch.float64).eps


@dataclass(frozen=True)
class Prediction:
    """Quality of the best least-squares prediction of a concept from features, on the examples it is fitted to.

    Attributes:
        r2: explained share of the variance of the concept, between 0 and 1: of all one-hot labels together for classes,
            the mean over the columns for other concepts.
        chance: expected R² for shuffled labels, p / (n - 1) with p features. The adjusted R² is
            (r2 - chance) / (1 - chance).
        directions: number of directions of the data from which the features are computed.
    """

    r2: float
    chance: float
    directions: int


def linear_prediction(moments: ClassMoments | ConceptMoments, dtype: torch.dtype) -> Prediction | None:
    """Return the best prediction from all coordinates of data stored in `dtype`; None if the concept is constant."""
    if isinstance(moments, ConceptMoments):
        variances = moments.concept_covariance.diagonal()
        varying = (variances > (4 * _EPS) ** 2 * moments.concept_mean.square()).nonzero().squeeze(1)
        cross, variance = moments.cross[:, varying] / variances[varying].sqrt(), float(len(varying))
    else:
        cross, variance = moments.cross, _label_variance(moments)
    return _best(moments.total, cross, variance, moments.n, _rounding(moments, dtype), moments.dim)


def quadratic_prediction(x: Tensor, z: Tensor, moments: ClassMoments, dtype: torch.dtype) -> Prediction | None:
    """Return the best prediction from leading directions of the data, their squares and their products.

    All directions would give more features of degree two than there are examples. The number r of directions is the
    largest whose r (r + 3) / 2 features are at most 1,000 and at most a quarter of the examples. The directions are the
    first r principal components of the coordinates scaled to unit variance, whatever the labels. If coordinates hardly
    correlate, these components are nearly arbitrary and miss information in a few coordinates.

    Args:
        x: examples, [n, ...].
        z: labels, [n].
        moments: moments of these examples.
        dtype: dtype in which the examples are stored.

    Returns:
        The prediction; None if all labels are equal, or if there are too few examples.
    """
    features = min(_MOST_FEATURES, len(z) // _EXAMPLES_PER_FEATURE)
    whiten = _leading(moments, int(((9 + 8 * features) ** 0.5 - 3) / 2), dtype)
    r = whiten.shape[1]
    if not r:
        return None
    first, second = torch.triu_indices(r, r, device=whiten.device)
    products = whiten.new_zeros(r + len(first), r + len(first))
    sums = whiten.new_zeros(moments.num_classes, len(products))
    for rows, labels in zip(x.flatten(1).split(_ROWS_AT_ONCE), z.split(_ROWS_AT_ONCE), strict=True):
        y = (rows.to(whiten) - moments.mean) @ whiten
        batch = torch.cat([y, y[:, first] * y[:, second]], 1)
        products += gram(batch)
        sums.index_add_(0, labels.to(whiten.device), batch)
    n, mean = len(z), sums.sum(0) / len(z)
    cross = (sums - moments.counts[:, None] * mean).T / n
    covariance = products / n - torch.outer(mean, mean)
    return _best(covariance, cross, _label_variance(moments), n, torch.zeros_like(mean), r)


def _label_variance(moments: ClassMoments) -> float:
    """Return the variance of the one-hot labels, all classes together."""
    return float((moments.weights * (1 - moments.weights)).sum())


def _rounding(moments: ClassMoments | ConceptMoments, dtype: torch.dtype) -> Tensor:
    """Return the variance of each coordinate that is due to rounding, [d]: four units in the last place."""
    return (4 * torch.finfo(dtype).eps) ** 2 * (moments.total.diagonal() + moments.mean.square())


def _leading(moments: ClassMoments, r: int, dtype: torch.dtype) -> Tensor:
    """Return a map [d, <= r] of centred data to about its first r principal components, of unit variance each."""
    covariance = moments.total
    std = covariance.diagonal().clamp(min=0).sqrt()
    inverse = torch.where(std**2 > _rounding(moments, dtype), 1 / std, 0.0)
    correlation = covariance * inverse * inverse[:, None]
    start = torch.randn(moments.dim, min(r, moments.dim), generator=torch.Generator().manual_seed(0), dtype=std.dtype)
    basis = torch.linalg.qr(start.to(std.device)).Q
    for _ in range(8):
        basis = torch.linalg.qr(correlation @ basis).Q
    values, vectors = torch.linalg.eigh(basis.T @ correlation @ basis)
    significant = values > 1e-6 * values.amax(0) if len(values) else values > 0
    return inverse[:, None] * (basis @ vectors[:, significant] / values[significant].sqrt())


def _best(
    covariance: Tensor, cross: Tensor, variance: float, n: int, rounding: Tensor, directions: int
) -> Prediction | None:
    """Return the prediction from features of covariance [p, p] and cross-covariance [p, m] with a concept.

    The variance of each feature is raised by its rounding error and by that of float64, so that directions that exist
    only by rounding predict nothing.

    Args:
        covariance: covariance of the features.
        cross: cross-covariance of the features with the columns of the concept.
        variance: variance of all these columns together.
        n: number of examples.
        rounding: variance of each feature that is due to rounding, [p].
        directions: number of directions to report.
    """
    if not variance > 0 or not covariance.isfinite().all():
        return None
    std = covariance.diagonal().clamp(min=0).sqrt()
    live = (std > 0).nonzero().squeeze(1)
    std = std[live]
    correlation = covariance[live][:, live] / std / std[:, None]
    ridge = rounding[live] / std.square() + len(live) * _EPS
    factor, failed = torch.linalg.cholesky_ex(correlation + ridge.diag())
    while failed and float(ridge.max()) < 1:
        ridge = 10 * ridge
        factor, failed = torch.linalg.cholesky_ex(correlation + ridge.diag())
    explained = torch.linalg.solve_triangular(factor, cross[live] / std[:, None], upper=False).square().sum()
    used = len(live) - float(ridge @ torch.cholesky_inverse(factor).diagonal())
    return Prediction(
        r2=min(1.0, float(explained) / variance),
        chance=min(1.0, used / max(1, n - 1)),
        directions=directions,
    )
