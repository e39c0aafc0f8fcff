"""Counterparts of a labelled sample: data that share some of its class statistics and nothing else.

The loss of a network on a counterpart, followed during training, shows when the network uses the shared statistics
(Belrose et al. 2024, "Neural Networks Learn Statistics of Increasing Complexity").
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from erasure.barycenter_search import transport
from erasure.covariance_factor import CovarianceFactor
from erasure.inputs import as_tensor, labelled_rows, require_range
from erasure.moments import ClassMoments


class Examples(NamedTuple):
    """Examples `x` [n, ...] and their labels `z` [n] int64."""

    x: Tensor
    z: Tensor


def counterpart(name: str, x: Tensor | np.ndarray, z: Any, *, seed: int = 0) -> Examples:
    """Draw a counterpart of a sample.

    - "order1": Gaussian, with the class means and the pooled within-class covariance of the sample.
    - "order2": Gaussian, with the class means and class covariances of the sample.
    - "independent": every coordinate is permuted within its class, which keeps class marginals and removes dependence.
    - "swap": each example is moved by the optimal transport map between Gaussians from the mean and covariance of its
      class to those of another class, whose label it takes. A covariance of lower rank is matched as closely as
      possible.
    - "quantile": each coordinate of an example is moved to its quantile in another class, whose label it takes.

    The moments that "order1" and "order2" share with the sample are equal to rounding, because draws are whitened. The
    maps of "swap" and "quantile" are exact for a class as a whole. With more than two classes, each class receives
    parts of all others, whose statistics differ from those of the whole by sampling.

    Args:
        name: one of `COUNTERPARTS`.
        x: examples [n, ...], floating, or vectors [..., d] with a label each.
        z: labels in any form that `erasure.inputs.check_batch` takes; at least two examples of each class that occurs.
        seed: seed of the draw; results are reproducible on a device.

    Returns:
        As many examples as the sample has, in the dtype and on the device of x, with labels on the device of z.

    Raises:
        ValueError: an unknown name, examples that are integers or not finite, labels that do not match, a class of one
            example, or a single class where a second one is needed.

    Example:
        >>> import torch
        >>> from erasure.matched_samples import counterpart
        >>> z = torch.arange(400) % 2
        >>> x = torch.rand(400, 3, dtype=torch.float64) ** (1 + z[:, None])
        >>> like = counterpart("order2", x, z)
        >>> bool(torch.allclose(like.x[z == 1].T.cov(), x[z == 1].T.cov()))
        True
    """
    if name not in COUNTERPARTS:
        raise ValueError(f"counterpart={name!r}: choose from {', '.join(COUNTERPARTS)}")
    rows, labels, _ = labelled_rows(x, z)
    x, z = as_tensor(x, "x"), as_tensor(z, "z")
    if not rows.is_floating_point():
        raise ValueError(f"x holds integers ({x.dtype}): a counterpart is drawn in its dtype; pass floating numbers")
    require_range(rows, "x")
    present, counts = labels.unique(return_counts=True)
    if int(counts.min()) < 2:
        raise ValueError(
            f"class {int(present[counts.argmin()])} has one example: a counterpart needs two of each class"
        )
    if name in ("swap", "quantile") and len(present) < 2:
        raise ValueError(f"counterpart={name!r} moves examples to another class, but there is only one")
    generator = torch.Generator().manual_seed(seed)
    drawn, targets = COUNTERPARTS[name](rows.double(), labels.to(x.device), generator)
    shape = z.shape if z.numel() == len(rows) else labels.shape  # one-hot labels become integers
    return Examples(drawn.to(x.dtype).view(x.shape), targets.to(z.device).view(shape))


def _order1(x: Tensor, z: Tensor, generator: torch.Generator) -> Examples:
    moments = ClassMoments.fit(x, z)
    factor = CovarianceFactor(moments.within, moments.mean, len(x))
    residuals = torch.empty(len(x), factor.rank, dtype=x.dtype, device=x.device)
    for rows in _by_class(z).values():
        residuals[rows] = _centred(len(rows), factor.rank, generator).to(x.device)
    drawn = factor.multiply(_whitened(residuals).T).T
    return Examples(moments.means[z] + drawn, z)


def _order2(x: Tensor, z: Tensor, generator: torch.Generator) -> Examples:
    moments = ClassMoments.fit(x, z)
    drawn = torch.empty_like(x)
    for j, rows in _by_class(z).items():
        factor = CovarianceFactor(moments.covariance(j), moments.means[j], len(rows))
        white = _whitened(_centred(len(rows), factor.rank, generator).to(x.device))
        drawn[rows] = moments.means[j] + factor.multiply(white.T).T
    return Examples(drawn, z)


def _independent(x: Tensor, z: Tensor, generator: torch.Generator) -> Examples:
    drawn = torch.empty_like(x)
    for rows in _by_class(z).values():
        draws = torch.rand(len(rows), x.shape[1], dtype=torch.float32, generator=generator)
        order = draws.argsort(0).to(x.device)
        drawn[rows] = x[rows].gather(0, order)
    return Examples(drawn, z)


def _swap(x: Tensor, z: Tensor, generator: torch.Generator) -> Examples:
    moments = ClassMoments.fit(x, z)
    classes = _by_class(z)
    factors = {j: CovarianceFactor(moments.covariance(j), moments.means[j], len(rows)) for j, rows in classes.items()}
    targets = _other_classes(classes, generator)
    moved = torch.empty_like(x)
    for j, rows in classes.items():
        for t in targets[rows].unique().tolist():
            chosen = rows[targets[rows] == t]
            moved[chosen] = moments.means[t] + (x[chosen] - moments.means[j]) @ transport(factors[j], factors[t]).T
    return Examples(moved, targets)


def _quantile(x: Tensor, z: Tensor, generator: torch.Generator) -> Examples:
    classes = _by_class(z)
    targets = _other_classes(classes, generator)
    ordered = {j: x[rows].sort(0).values for j, rows in classes.items()}
    moved = torch.empty_like(x)
    for rows in classes.values():
        ranks = x[rows].argsort(0).argsort(0).double() / (len(rows) - 1)
        for t in targets[rows].unique().tolist():
            chosen = targets[rows] == t
            positions = ranks[chosen] * (len(ordered[t]) - 1)
            below = positions.floor().long().clamp(max=len(ordered[t]) - 2)
            low, high = ordered[t].gather(0, below), ordered[t].gather(0, below + 1)
            moved[rows[chosen]] = torch.lerp(low, high, positions - below)
    return Examples(moved, targets)


COUNTERPARTS: Mapping[str, Callable[[Tensor, Tensor, torch.Generator], Examples]] = {
    "order1": _order1,
    "order2": _order2,
    "independent": _independent,
    "swap": _swap,
    "quantile": _quantile,
}
"""Functions that draw counterparts, by name."""


def _by_class(z: Tensor) -> dict[int, Tensor]:
    """Return the positions of each class that occurs."""
    return {j: (z == j).nonzero().squeeze(1) for j in z.unique().tolist()}


def _other_classes(classes: Mapping[int, Tensor], generator: torch.Generator) -> Tensor:
    """Return for each example another class, all other classes equally often."""
    n = sum(map(len, classes.values()))
    first = next(iter(classes.values()))
    targets = torch.empty(n, dtype=torch.int64, device=first.device)
    for j, rows in classes.items():
        others = torch.tensor([t for t in classes if t != j])
        turn = torch.arange(len(rows)) % len(others)
        targets[rows] = others[turn[torch.randperm(len(rows), generator=generator)]].to(rows.device)
    return targets


def _centred(n: int, r: int, generator: torch.Generator) -> Tensor:
    drawn = torch.randn(n, r, dtype=torch.float64, generator=generator)
    return drawn - drawn.mean(0)


def _whitened(centred: Tensor) -> Tensor:
    """Whiten a sample [n, r] of mean zero: its covariance (divided by n) becomes the identity to rounding."""
    q, _ = torch.linalg.qr(centred)
    q, _ = torch.linalg.qr(q)
    return q * len(centred) ** 0.5
