"""Coordinates that an eraser leaves without variance, which are set to their means."""

import torch
from torch import Tensor


def removed_columns(covariance: Tensor, left: Tensor, right: Tensor) -> tuple[int, ...]:
    """Return the coordinates without variance after x - (x - m̄) Bᵀ Aᵀ, of data of this covariance [d, d]."""
    product = covariance @ right.T
    before = covariance.diagonal()
    after = before - 2 * (left * product).sum(1) + (left @ (right @ product) * left).sum(1)
    return constant_columns(before, after)


def constant_columns(before: Tensor, after: Tensor) -> tuple[int, ...]:
    """Return the coordinates that vary `before`, and `after` by rounding only, given their variances [d]."""
    rounding = 10 * len(before) * torch.finfo(before.dtype).eps * before  # as `CovarianceFactor` has it
    gone = ((before > 0) & (after <= rounding)).tolist()
    return tuple(i for i, constant in enumerate(gone) if constant)


def made_constant(x: Tensor, columns: tuple[int, ...], mean: Tensor) -> Tensor:
    """Set some columns of `x` [n, d] to their means, in place."""
    if columns:
        at = torch.tensor(columns).to(x.device, non_blocking=True)
        x[:, at] = mean[at]
    return x
