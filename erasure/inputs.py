"""Check batches of examples and labels, bring them to rows, and process them a few rows at a time."""

import numbers
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard, TypeVar

import numpy as np
import torch
from torch import Tensor

ROWS_AT_ONCE = 8192
_ARRAYS = frozenset(map(np.dtype, ("?", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8")))
_TENSORS = frozenset({
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
})  # fmt: skip
_STRINGS = ("str", "string")  # dtypes of pandas
_NUMBERS = (int, float, np.bool_, np.integer, np.floating)
FLOATING = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_FEW_CLASSES = 1000  # a small first batch may lack most of its classes
LEAST, _LARGEST = 1e-150, 1e150  # values whose squares float64 can hold

Array = TypeVar("Array", Tensor, np.ndarray)  # the output is of the input's kind


def by_rows(function: Callable[[slice], Tensor], out: Tensor) -> Tensor:
    """Fill `out` [n, ...] with the results of `function` on slices of at most 8,192 rows."""
    for start in range(0, len(out), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        out[rows] = function(rows)
    return out


def as_tensor(values: Any, name: str, *, gradients: bool = False) -> Tensor:
    """Convert plain numbers to a tensor.

    Args:
        values: a dense tensor, a NumPy array, a pandas frame or series, or a list of numbers, arrays or tensors. An
            array is not copied where torch can share its memory.
        name: their name in error messages.
        gradients: whether gradients pass through the result.

    Raises:
        ValueError: anything else.
    """
    if isinstance(values, list | tuple) and values and all(isinstance(value, Tensor) for value in values):
        parts = [as_tensor(value, name, gradients=gradients) for value in values]
        if len({part.shape for part in parts}) > 1:
            raise ValueError(f"{name} holds tensors of different shapes: give each example as many values")
        if len({part.is_floating_point() for part in parts}) > 1:  # the dtype of the floats would round integers
            parts = [part.double() for part in parts]
        values = torch.stack(parts)
    if not isinstance(values, Tensor):
        array = as_array(values, name)
        if array.dtype.kind == "U":
            raise ValueError(
                f"{name} holds {_shown(array.flat[0])}, expected numbers; integers for classes are "
                f"numpy.unique({name}, return_inverse=True)[1]"
            )
        if min(array.strides, default=0) < 0:
            array = array.copy()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # it is never written to
            values = torch.as_tensor(array)
    plain = values.layout == torch.strided and not values.is_nested and not hasattr(values, "get_mask")
    if not plain or values.dtype not in _TENSORS:
        kind = type(values).__name__ if plain else f"{type(values).__name__}, sparse, nested or masked,"
        raise ValueError(
            f"{name} is a {kind} of {values.dtype}: pass a dense torch.Tensor of real numbers, such as float32 or int64"
        )
    return values if gradients else values.detach()


def as_array(values: Any, name: str) -> np.ndarray:
    """Convert plain numbers, booleans or strings, one kind for all, to an array.

    Args:
        values: see `as_tensor`.
        name: their name in error messages.

    Raises:
        ValueError: anything else, such as masked, missing or complex values, dates and categories, which NumPy would
            silently turn into numbers.
    """
    if isinstance(values, Tensor):
        values = as_tensor(values, name).cpu()
        return (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    if is_pandas(values):
        for dtype in values.dtypes if values.ndim == 2 else [values.dtype]:
            if not (isinstance(dtype, np.dtype) or str(dtype) in _STRINGS):
                raise ValueError(f"{name} holds values of type {dtype!s:.40}: pass its .to_numpy()")
    elif not isinstance(values, list | tuple | np.ndarray) or isinstance(values, np.ma.MaskedArray):
        kind = type(values)
        raise ValueError(
            f"{name} is a {kind.__module__}.{kind.__qualname__}: pass a dense tensor, a NumPy array without masked or "
            "missing values, a pandas frame or series, or a list"
        )
    try:
        array = np.asarray(values)
        if array.dtype.kind in "OU" and not (isinstance(values, np.ndarray) and array.dtype.kind == "U"):
            array = np.array(values, dtype=object)
    except Exception as error:  # packages raise errors of their own types
        if "inhomogeneous" in str(error):
            raise ValueError(f"{name} holds rows of different lengths: give each example as many values") from None
        why = " ".join(str(error).split())
        raise ValueError(f"{name} cannot be read as an array ({why:.120}): pass a dense tensor or an array") from error
    if array.dtype == object:
        array = _of_objects(array, name)
    if array.dtype not in _ARRAYS and array.dtype.kind != "U":
        raise ValueError(f"{name} has dtype {array.dtype!s:.60}: convert it to real numbers, as float64 or int64")
    return array


def is_pandas(values: Any) -> TypeGuard[Any]:
    """Return whether values are a frame, a series or an index of pandas."""
    of_pandas = type(values).__module__.partition(".")[0] == "pandas"
    return of_pandas and hasattr(values, "ndim") and hasattr(values, "to_numpy")  # which groups of rows do not have


def _of_objects(array: np.ndarray, name: str) -> np.ndarray:
    """Convert an array of objects to one of numbers, or of strings."""
    strings = any(isinstance(value, str) for value in array.flat)
    for value in array.flat:
        if not isinstance(value, str if strings else _NUMBERS):
            raise ValueError(
                f"{name} holds {_shown(value)}: pass only numbers, or only strings for classes, and none missing"
            )
    return array.astype(str) if strings else np.array(array.tolist())


def _shown(value: Any) -> str:
    """Return the Python representation of a value, shortened and on one line."""
    return " ".join(repr(value.item() if isinstance(value, np.generic) else value).split())[:60]


def whole_number(value: Any, name: str) -> int:
    """Return a whole number as an int; raise ValueError for anything else, also for booleans and for 3.0."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name}={_shown(value)}: give a whole number") from None


def real_number(value: Any, name: str) -> float:
    """Return a real number as a float, also NaN; raise ValueError for anything else, also for booleans."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name}={_shown(value)}: give a number")
    return float(value)


def whole_numbers(values: Any, name: str) -> int | list[int]:
    """Return a whole number as an int, or several in a list, array or tensor as ints; raise as `whole_number`."""
    if isinstance(values, str) or not np.ndim(values):
        return whole_number(values, name)
    return [whole_number(value, name) for value in values]


def number_of_classes(z: Tensor, name: str = "z") -> int:
    """Return the number of classes of integer labels: the largest label plus one.

    Raises:
        ValueError: labels that are real numbers, negative, or so large that most classes would be empty.
    """
    if z.is_floating_point():
        raise ValueError(f"{name} has dtype {z.dtype}: labels are integers from 0, booleans, or one-hot")
    if not z.numel():
        return 0
    if z.dtype == torch.bool:
        return 2
    least, largest = label_range(z)
    if least < 0:
        raise ValueError(f"label {least} is out of range: labels run from 0 to {largest}")
    if largest >= max(z.numel(), _FEW_CLASSES):
        raise ValueError(
            f"{name} holds the label {largest} for {z.numel()} examples, and labels count classes from 0: pass "
            f"numpy.unique({name}, return_inverse=True)[1]"
        )
    return largest + 1


def require_same_rows(x: Any, z: Any, name: str = "z", x_name: str = "x") -> None:
    """Raise ValueError for pandas objects whose rows have the same labels in another order.

    Rows are paired by position, as scikit-learn does; pandas pairs them by label.

    Args:
        x: examples.
        z: what belongs to them, or a mapping of several such by name, which may hold mappings.
        name: what a message calls z; the names of a mapping stand for themselves.
        x_name: what a message calls x.
    """
    indexed = [*_row_labels(x_name, x), *_row_labels(name, z)]
    for key, other in indexed[1:]:
        first, rows = indexed[0]
        if len(rows) == len(other) and not rows.equals(other) and set(rows) == set(other):
            raise ValueError(
                f"{first} and {key} have the same row labels in another order: pass {key}.loc[{first}.index], or "
                f"{key}.to_numpy() to pair rows by position"
            )


def _row_labels(name: str, values: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and row labels of pandas objects, which may lie in nested mappings."""
    if isinstance(values, Mapping):
        for key, one in values.items():
            yield from _row_labels(str(key), one)
    elif not isinstance(values, Tensor) and hasattr(rows := getattr(values, "index", None), "equals"):  # not of lists
        yield name, rows


def require_same_columns(x: Any, other: Any, name: str, x_name: str = "x") -> None:
    """Raise ValueError for frames whose columns differ in name or order; others are paired by position.

    Names that are not strings, such as those of a frame made from an array, raise only if the order alone differs.

    Args:
        x: examples.
        other: other examples with the same coordinates.
        name: name of `other` in error messages.
        x_name: name of x in error messages.
    """
    mine, theirs = ([*getattr(one, "columns", ())] for one in (x, other))
    if mine == theirs or len(mine) != len(theirs):
        return
    reordered = sorted(map(str, mine)) == sorted(map(str, theirs))
    if reordered or all(isinstance(column, str) for column in (*mine, *theirs)):
        columns = f"{x_name}.columns" if x_name.isidentifier() else f"[{', '.join(map(repr, mine))}]"
        raise ValueError(
            f"{name} has other columns than {x_name}, or in another order: pass {name}[{columns:.200}], or "
            f"{name}.to_numpy() to pair columns by position"
        )


def require_range(values: Tensor, name: str) -> None:
    """Raise ValueError for values that are not finite, or whose squares float64 cannot hold.

    The check waits once for the device.

    Args:
        values: examples or a concept, [n, ...].
        name: their name in error messages.
    """
    if not values.is_floating_point() or not values.numel():
        return
    size = float(torch.linalg.vector_norm(values.detach(), dtype=torch.float64))
    if LEAST < size < _LARGEST:
        return
    finite = values.isfinite().flatten(1).all(1)
    if not finite.all():
        first = int((~finite).nonzero()[0])
        raise ValueError(
            f"{name} holds values that are not finite (NaN or infinity), first in example {first}: clean them"
        )
    largest = float(values.abs().max())
    if size >= _LARGEST:
        raise ValueError(
            f"{name} has values as large as {largest:.0e}, whose squares overflow: divide all by one number"
        )
    if largest:
        raise ValueError(f"{name} has no value above {largest:.0e}, and squares underflow: multiply all by one number")


def values_per_example(x: Tensor, *z: Tensor) -> int:
    """Return the number d of values that make up one example.

    Examples are vectors [..., d] if some `z` has a value or a row of columns for every vector, such as one label per
    token. Otherwise an example is x[0].

    Raises:
        ValueError: `x` holds no examples, or has no rows.
    """
    if x.ndim < 2:
        raise ValueError(f"x has shape {tuple(x.shape)}: examples are rows, [n, d]; pass x[:, None] for one coordinate")
    if not x.numel():
        raise ValueError(f"x has shape {tuple(x.shape)}: there are no values to fit an eraser to")
    per_vector = any(one.ndim > 1 and one.shape[: x.ndim - 1] == x.shape[:-1] for one in z)
    return x.shape[-1] if per_vector else x[:1].numel()


def leading_shape(x: Tensor, dim: int, name: str = "x") -> torch.Size:
    """Return the shape of `x` without the axes of one example of `dim` values; errors call `x` by `name`.

    Raises:
        ValueError: `x` has another number of values per example.
    """
    if x.ndim >= 1 and x.shape[-1] == dim:
        leading = x.shape[:-1]
    elif x.ndim >= 2 and (x[:1].numel() == dim or not len(x)):
        leading = x.shape[:1]
    else:
        raise ValueError(
            f"{name} has shape {tuple(x.shape)}: expected [n, ...] with {dim} values per example, or [..., {dim}]"
        )
    return leading


def labelled_rows(
    x: Any, z: Any, *, num_classes: int | None = None, dim: int | None = None
) -> tuple[Tensor, Tensor, int]:
    """Return examples as rows [n, d], their labels [n] int64, and the number k of classes.

    Args:
        x: examples, [n, ...] or [..., d].
        z: labels in any form that `check_batch` takes.
        num_classes: k; by default the width of one-hot labels, or else the largest label plus one.
        dim: values per example; see `values_per_example` for the default.

    Raises:
        ValueError: no examples, more classes than examples could have, or as `check_batch`.
    """
    require_same_rows(x, z)
    x, z = as_tensor(x, "x"), as_tensor(z, "z")
    dim = values_per_example(x, z) if dim is None else whole_number(dim, "dim")
    leading = leading_shape(x, dim)
    if num_classes is not None and (num_classes := whole_number(num_classes, "num_classes")) < 2:
        raise ValueError(f"num_classes={num_classes}: erasing class information needs at least 2 classes")
    labels, k = _labels(z, leading, num_classes)
    return x.reshape(leading.numel(), dim), labels, k


def check_batch(
    x: Tensor | np.ndarray, z: Any, dim: int, num_classes: int, *, in_range: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Return examples as rows [n, dim] and their labels [n] int64, or None where `z` is None; gradients pass through.

    Args:
        x: whole examples [n, ...] of `dim` values each, or vectors [..., dim], as hidden states [batch, tokens, dim].
        z: one label per example, or one per entry of the leading axes, shared by its vectors. A tensor, array or list
            of integers in 0..k-1, of booleans, or one-hot with a last dimension of k.
        dim: values per example, d.
        num_classes: k.
        in_range: check the range of the labels, which waits for their device; if False, the caller does so with
            `require_labels`.

    Raises:
        ValueError: invalid examples or labels; the message names the value, what is allowed and what to change.
    """
    require_same_rows(x, z)
    x = as_tensor(x, "x", gradients=True)
    leading = leading_shape(x, dim)
    rows = x.reshape(leading.numel(), dim)
    if z is None:
        return rows, None
    return rows, _labels(as_tensor(z, "z"), leading, num_classes, in_range=in_range)[0]


def require_labels(z: Tensor, num_classes: int) -> None:
    """Raise ValueError for integer labels outside 0..k-1."""
    if not z.numel():
        return
    least, largest = label_range(z)
    if not 0 <= least <= largest < num_classes:
        worst = least if least < 0 else largest
        raise ValueError(f"label {worst} is out of range: labels run from 0 to {num_classes - 1}")


def label_range(z: Tensor) -> tuple[int, int]:
    """Return the least and the largest of one or more integer labels; waits once for their device."""
    least, largest = torch.stack(z.aminmax()).tolist()
    return least, largest


def per_example(z: Tensor, leading: torch.Size) -> bool:
    """Return whether `z` has one number per example, or per entry of their first axes, whose shape is `leading`."""
    return z.shape == leading[: z.ndim] and (z.ndim > 0 or not leading)


def require_one_reading(z: Tensor, leading: torch.Size, num_classes: int | None = None, name: str = "z") -> None:
    """Raise ValueError if z [n, m] of vectors [n, m, d] may hold either a value per vector or m columns per example.

    Integers that are not one-hot are labels of vectors.

    Args:
        z: labels or a concept.
        leading: shape of the examples without their coordinates.
        num_classes: k, if it is known that z holds classes.
        name: its name in error messages.
    """
    if z.ndim < 2 or z.shape[-1] == 1 or not per_example(z, leading):
        return
    shape, columns = tuple(z.shape), z.shape[-1]
    if num_classes in (None, columns) and is_one_hot(z):
        raise ValueError(
            f"{name} of shape {shape} may be labels or one-hot: pass one integer per example, {name}.argmax(-1), or "
            f"{name}[..., None] for one label per vector"
        )
    if num_classes is None and z.is_floating_point():
        raise ValueError(
            f"{name} of shape {shape} may be one number per vector or {columns} per example: pass {name}[..., None] "
            f"for one per vector; for {columns} per example repeat them for its vectors, {[*shape, columns]}, or pass "
            "whole examples, x.flatten(1)"
        )


def single_column(z: Tensor, leading: torch.Size) -> Tensor:
    """Return `z` without a last axis of one column that the `leading` examples do not have."""
    column = z.ndim > 1 and z.shape[-1] == 1 and not per_example(z, leading)
    return z.squeeze(-1) if column else z


def is_one_hot(z: Tensor) -> bool:
    """Return whether every row of `z` [..., m] consists of zeros and a single one."""
    return z.ndim > 1 and bool(((z == 0) | (z == 1)).all() and (z.sum(-1) == 1).all())


def spread(z: Tensor, leading: torch.Size, trailing: int = 0) -> Tensor:
    """Repeat `z` over the leading axes of the examples that it lacks: one row for each of the `leading` examples."""
    shared, columns = z.shape[: z.ndim - trailing], z.shape[z.ndim - trailing :]
    missing = [1] * (len(leading) - len(shared))
    return z.reshape([*shared, *missing, *columns]).expand([*leading, *columns]).reshape([-1, *columns])


def _labels(z: Tensor, leading: torch.Size, num_classes: int | None, *, in_range: bool = True) -> tuple[Tensor, int]:
    """Return integer labels [n] of `leading` examples, and the number of classes; see `labelled_rows`."""
    require_one_reading(z, leading, num_classes)
    z = single_column(z, leading)
    columns = z.ndim > 1 and z.shape[:-1] == leading[: z.ndim - 1] and z.shape[-1] == (num_classes or z.shape[-1])
    if columns and not per_example(z, leading) and is_one_hot(z):
        num_classes = z.shape[-1]
        z = z.int().argmax(-1)
    if not per_example(z, leading):
        raise ValueError(f"z has shape {tuple(z.shape)}: expected one label per example, {list(leading)}")
    if num_classes is None:
        num_classes = max(2, number_of_classes(z))  # labels may be all 0
    elif z.is_floating_point():
        raise ValueError(f"z has dtype {z.dtype}: labels are integers in 0..{num_classes - 1}, booleans, or one-hot")
    elif in_range:
        require_labels(z.long(), num_classes)
    return spread(z.long(), leading), num_classes
