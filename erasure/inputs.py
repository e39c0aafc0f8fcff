"""Check batches of examples and labels, bring them to rows, and process them a few rows at a time."""

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

_ROWS_AT_ONCE = 8192
_NUMERIC = "biufc"  # kinds of NumPy arrays that torch can hold
_NUMBERS = (int, float, complex, np.number, np.bool_)
_CLASSES = "classes = np.unique(z); z = np.searchsorted(classes, z)"

Array = TypeVar("Array", Tensor, np.ndarray)  # the output is of the input's kind


def by_rows(function: Callable[[slice], Tensor], out: Tensor) -> Tensor:
    """Fill `out` [n, ...] with the results of `function` on slices of at most 8,192 rows."""
    for start in range(0, len(out), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        out[rows] = function(rows)
    return out


def as_tensor(values: Any, name: str) -> Tensor:
    """Convert a tensor, an array, a pandas object or a list of numbers to a tensor.

    Args:
        values: the numbers; an array is not copied where torch can share its memory.
        name: what an error calls them; "z" for labels.

    Raises:
        ValueError: the values are not numbers.
    """
    if isinstance(values, Tensor) and values.layout == torch.strided:
        return values
    if isinstance(values, Tensor) or hasattr(values, "toarray"):
        dense = "to_dense" if isinstance(values, Tensor) else "toarray"
        raise ValueError(f"{name} is a sparse matrix, and erasure would fill it: pass {name}.{dense}()")
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name} holds rows of different lengths: give each example as many values") from None
    if array.dtype == object and all(isinstance(value, _NUMBERS) for value in array.flat):
        array = np.array(array.tolist())  # numbers in a column that pandas holds as objects
    if array.dtype.kind not in _NUMERIC:
        odd = next((value for value in array.flat if not isinstance(value, _NUMBERS)), array.dtype)
        remedy = f"number the classes first ({_CLASSES})" if name == "z" else "give one number for each coordinate"
        raise ValueError(f"{name} holds {_shown(odd)}, expected numbers: {remedy}")
    if not array.dtype.isnative or min(array.strides, default=0) < 0:
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # it is only read
        return torch.as_tensor(array)


def _shown(value: Any) -> str:
    """Return a value as it is written in Python, shortened."""
    return repr(value.item() if isinstance(value, np.generic) else value)[:60]


def values_per_example(x: Tensor, *z: Tensor) -> int:
    """Return the number d of values that make up one example.

    An example is a vector [..., d] where some `z` has a value for every vector, as labels of tokens do; else x[0].

    Raises:
        ValueError: `x` holds no examples, or is not made of rows.
    """
    if x.ndim < 2:
        raise ValueError(f"x has shape {tuple(x.shape)}: examples are rows, [n, d]; pass x[:, None] for one coordinate")
    if not x.numel():
        raise ValueError(f"x has shape {tuple(x.shape)}: there are no values to fit an eraser to")
    per_vector = any(one.ndim > 1 and one.shape == x.shape[:-1] for one in z)
    return x.shape[-1] if per_vector else x[:1].numel()


def leading_shape(x: Tensor, dim: int, name: str = "x") -> torch.Size:
    """Return the shape of `x`, which errors call `name`, without the axes that make up one example of `dim` values.

    Raises:
        ValueError: `x` has another number of values per example, or is complex.
    """
    if x.ndim >= 1 and x.shape[-1] == dim:
        leading = x.shape[:-1]
    elif x.ndim >= 2 and (x[:1].numel() == dim or not len(x)):
        leading = x.shape[:1]
    else:
        raise ValueError(
            f"{name} has shape {tuple(x.shape)}: expected [n, ...] with {dim} values per example, or [..., {dim}]"
        )
    if x.is_complex():
        raise ValueError(f"{name} is complex: pass real and imaginary parts as separate coordinates")
    return leading


def check_batch(x: Tensor | np.ndarray, z: Any, dim: int, num_classes: int) -> tuple[Tensor, Tensor | None]:
    """Return examples as rows [n, dim] and their labels [n] int64, or None where `z` is None.

    Args:
        x: whole examples [n, ...] of `dim` values each, or vectors [..., dim], as hidden states [batch, tokens, dim].
        z: a label for each example, or for each leading dimension, whose vectors share it: a tensor, array or list of
            integers in 0..k-1, of booleans, or one-hot with a last dimension of k.
        dim: values per example, d.
        num_classes: k.

    Raises:
        ValueError: names the value, what is allowed and what to change.
    """
    x = as_tensor(x, "x")
    leading = leading_shape(x, dim)
    rows = x.reshape(leading.numel(), dim)
    return rows, None if z is None else _labels(as_tensor(z, "z"), leading, num_classes)


def per_example(z: Tensor, leading: torch.Size) -> bool:
    """Return whether `z` has one number for each of the `leading` examples, or for each of their first axes."""
    return z.shape == leading[: z.ndim] and (z.ndim > 0 or not leading)


def is_one_hot(z: Tensor) -> bool:
    """Return whether every row of `z` [..., m] consists of zeros and a single one."""
    return z.ndim > 1 and bool(((z == 0) | (z == 1)).all() and (z.sum(-1) == 1).all())


def spread(z: Tensor, leading: torch.Size, trailing: int = 0) -> Tensor:
    """Repeat `z` over the leading axes of the examples that it lacks: one row for each of the `leading` examples."""
    shared, columns = z.shape[: z.ndim - trailing], z.shape[z.ndim - trailing :]
    missing = [1] * (len(leading) - len(shared))
    return z.reshape([*shared, *missing, *columns]).expand([*leading, *columns]).reshape([-1, *columns])


def _labels(z: Tensor, leading: torch.Size, num_classes: int) -> Tensor:
    """Return integer labels [n] of `leading` examples."""
    plain = per_example(z, leading)
    if z.ndim > 1 and z.shape[-1] == num_classes and z.shape[:-1] == leading[: z.ndim - 1]:
        hot = is_one_hot(z)
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
    return spread(z, leading)
