"""Batches of examples: checked, and worked on some rows at a time."""

from collections.abc import Callable

import torch
from torch import Tensor

_ROWS_AT_ONCE = 8192


def by_rows(function: Callable[[slice], Tensor], out: Tensor) -> Tensor:
    """`out` [n, ...], filled with what `function` computes of some of its rows at a time, in whatever precision."""
    for start in range(0, len(out), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        out[rows] = function(rows)
    return out


def check_batch(x: Tensor, z: Tensor | None, dim: int, num_classes: int) -> Tensor:
    """Flatten `x` to [n, dim], after checking it and its labels.

    Raises:
        ValueError: naming the value, what is allowed and what to change.
    """
    if x.ndim < 2 or (x[:1].numel() != dim and len(x)):
        raise ValueError(f"x has shape {tuple(x.shape)}: expected [n, ...] with {dim} values per example")
    if x.is_complex():
        raise ValueError("x is complex: pass real and imaginary parts as separate coordinates")
    if z is not None:
        if z.shape != x.shape[:1]:
            raise ValueError(f"z has shape {tuple(z.shape)}: expected one label per example, [{len(x)}]")
        if z.is_floating_point() or z.is_complex() or z.dtype == torch.bool:
            raise ValueError(f"z has dtype {z.dtype}: labels are integers in 0..{num_classes - 1}")
        if len(z) and not 0 <= int(z.min()) <= int(z.max()) < num_classes:
            worst = int(z.min()) if int(z.min()) < 0 else int(z.max())
            raise ValueError(f"label {worst} is out of range: labels run from 0 to {num_classes - 1}")
    return x.reshape(len(x), dim)
