"""Batches of examples: brought to rows with integer labels, checked, and worked on some rows at a time."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

_ROWS_AT_ONCE = 8192

Array = TypeVar("Array", Tensor, np.ndarray)  # what goes in comes out


def by_rows(function: Callable[[slice], Tensor], out: Tensor) -> Tensor:
    """`out` [n, ...], filled with what `function` computes of some of its rows at a time, in whatever precision."""
    for start in range(0, len(out), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        out[rows] = function(rows)
    return out


def check_batch(x: Tensor | np.ndarray, z: Any, dim: int, num_classes: int) -> tuple[Tensor, Tensor | None]:
    """Examples as rows [n, dim], with their labels [n] int64, or None where `z` is.

    Args:
        x: whole examples, [n, ...] of `dim` values each, or vectors [..., dim], as hidden states [batch, tokens, dim].
        z: a label for each, or for each leading dimension, whose vectors share it: a tensor, array or list of
            integers in 0..k-1, of booleans, or one-hot with a last dimension of k.
        dim: values per example, d.
        num_classes: k.

    Raises:
        ValueError: naming the value, what is allowed and what to change.
    """
    x = torch.as_tensor(x)
    if x.ndim >= 1 and x.shape[-1] == dim:
        leading = x.shape[:-1]
    elif x.ndim >= 2 and (x[:1].numel() == dim or not len(x)):
        leading = x.shape[:1]
    else:
        raise ValueError(
            f"x has shape {tuple(x.shape)}: expected [n, ...] with {dim} values per example, or [..., {dim}]"
        )
    if x.is_complex():
        raise ValueError("x is complex: pass real and imaginary parts as separate coordinates")
    return x.reshape(leading.numel(), dim), None if z is None else _labels(torch.as_tensor(z), leading, num_classes)


def _labels(z: Tensor, leading: torch.Size, num_classes: int) -> Tensor:
    """Integer labels of `leading` examples, [n]."""
    plain = z.shape == leading[: z.ndim] and (z.ndim > 0 or not leading)
    if z.ndim > 1 and z.shape[-1] == num_classes and z.shape[:-1] == leading[: z.ndim - 1]:
        hot = bool(((z == 0) | (z == 1)).all() and (z.sum(-1) == 1).all())
        if hot and plain:
            raise ValueError(f"z of shape {tuple(z.shape)} may be labels or one-hot: pass one integer per example")
        if hot:
            z, plain = z.int().argmax(-1), True
    if not plain:
        raise ValueError(f"z has shape {tuple(z.shape)}: expected one label per example, {list(leading)}")
    if z.is_floating_point() or z.is_complex():
        raise ValueError(f"z has dtype {z.dtype}: labels are integers in 0..{num_classes - 1}, booleans, or one-hot")
    z = z.long()
    if z.numel() and not 0 <= int(z.min()) <= int(z.max()) < num_classes:
        worst = int(z.min()) if int(z.min()) < 0 else int(z.max())
        raise ValueError(f"label {worst} is out of range: labels run from 0 to {num_classes - 1}")
    return z.reshape([*z.shape, *[1] * (len(leading) - z.ndim)]).expand(leading).reshape(-1)
