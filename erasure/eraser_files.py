"""The file format of fitted erasers: a safetensors file that names the class and holds its fields.

Files are not trusted. Nothing in them is executed: a file names one of the classes that are already imported, and every
field is checked against the type or shape that the dataclass declares.
"""

import dataclasses
import functools
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from erasure.inputs import FLOATING
from erasure.store.checked_files import load_tensors, save_tensors
from erasure.torch_modes import ordinary_tensors

if TYPE_CHECKING:
    from erasure.eraser import Eraser

    E = TypeVar("E", bound=Eraser)


def save_eraser(eraser: "Eraser", path: Path) -> None:
    """Write the fields of an eraser, tensors and options, with a checksum.

    Raises:
        ValueError: it has an attribute that is not a field of its dataclass.
    """
    kind, fields = type(eraser), _fields(type(eraser))
    for name in vars(eraser):
        if name not in fields and not isinstance(getattr(kind, name, None), functools.cached_property):
            raise ValueError(f"{kind.__name__}.{name} is not a field of the dataclass: declare it so that it is saved")
    values = {name: getattr(eraser, name) for name in fields}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    options = {name: value for name, value in values.items() if name not in tensors}
    save_tensors(path, tensors, {"eraser": f"{kind.__module__}.{kind.__qualname__}", "options": options})


def load_eraser(cls: "type[E]", path: Path) -> "E":
    """Load an eraser of this class, or of one derived from it, that `save_eraser` wrote.

    Raises:
        ValueError: the file is damaged or holds something else, or a field is missing, unknown, or of another type or
            shape than the class declares.
    """
    with ordinary_tensors():
        tensors, metadata = load_tensors(path)
    family = _family(cls)
    known = {name: kind for name, kind in family.items() if not (kind.__abstractmethods__ or kind.transductive)}
    name, options = metadata.get("eraser"), metadata.get("options")
    if not isinstance(name, str) or name not in known or not isinstance(options, dict):
        content = _described(name).strip("'") if name else "no eraser"
        raise ValueError(f"{path} holds {content}: {cls.__name__}.load reads {', '.join(sorted(known))}")
    kind, eraser = known[name], object.__new__(known[name])
    values = tensors | {key: tuple(v) if isinstance(v, list) else v for key, v in options.items()}
    try:
        vars(eraser).update(_checked(kind, values))
    except ValueError as error:
        raise ValueError(f"{path} is no {kind.__name__}: {error}: save it again") from None
    return eraser  # pyright: ignore[reportReturnType] it is one of the class's family


def _family(kind: "type[Eraser]") -> "dict[str, type[Eraser]]":
    """Return a class and its subclasses by qualified name, since a user's class may have the name of ours."""
    family = {f"{kind.__module__}.{kind.__qualname__}": kind}
    return family | {name: one for child in kind.__subclasses__() for name, one in _family(child).items()}


def _fields(kind: "type[Eraser]") -> dict[str, dataclasses.Field]:
    """Return the fields of an eraser class by name; raise ValueError if it is no dataclass."""
    fields = {field.name: field for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}
    if not {"mean", "num_classes"} <= fields.keys():
        raise ValueError(f"{kind.__name__} is not a dataclass with the fields mean and num_classes: make it one")
    return fields


def _checked(kind: "type[Eraser]", values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all fields of an eraser from an untrusted file.

    Raises:
        ValueError: a value is missing or unknown, or not of the type or shape that its field declares.
    """
    fields = _fields(kind)
    defaults = {name: field.default for name, field in fields.items() if field.default is not dataclasses.MISSING}
    checked = {**defaults, **values}
    if wrong := checked.keys() ^ fields.keys():
        name = min(wrong)
        what = f"it has {_described(name)}, which is none" if name in checked else f"it lacks {_described(name)}, one"
        raise ValueError(f"{what} of its fields {', '.join(fields)}")
    try:
        hints = get_type_hints(kind, include_extras=True)
    except NameError:  # of types that are imported for type checkers only
        hints = {}
    hints |= {"mean": Annotated[Tensor, "d"]}
    k, mean = checked["num_classes"], checked["mean"]
    if not (isinstance(k, int) and 2 <= k < 2**63) and (k is not None or hints.get("num_classes") is int):
        raise ValueError(f"its num_classes is {_described(k)}: need a whole number of at least 2")
    axes = {"d": mean.numel() if isinstance(mean, Tensor) else 0} | ({} if k is None else {"k": k})
    for name in ("mean", *fields):
        tensor, shape = checked[name], [part for part in get_args(hints.get(name)) if isinstance(part, str)]
        if get_origin(hints.get(name)) is Annotated and shape and (name not in defaults or tensor is not None):
            if not isinstance(tensor, Tensor):
                raise ValueError(f"its {name} is {_described(tensor)}: need a tensor")
            _require_shape(name, tensor, shape[0], axes, mean.dtype)
        elif not _fits(checked[name], hint := hints.get(name)):
            wanted = hint.__name__ if isinstance(hint, type) else hint
            raise ValueError(f"its {name} is {_described(checked[name])}: need {wanted}")
    constant = checked["constant"] if hints.get("constant") == tuple[int, ...] else ()
    if not all(0 <= i < axes["d"] for i in constant):
        raise ValueError(f"its constant is {_described(constant)}: need coordinates from 0 to {axes['d'] - 1}")
    return checked


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value of a file is of the type `hint`; True for types that no eraser of this package has."""
    parts = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if get_origin(hint) is tuple:  # tuples within a tuple are lists in JSON
        parts = parts[:1] * len(value) if isinstance(value, tuple | list) and parts[1:] == (...,) else parts
        return isinstance(value, tuple | list) and len(value) == len(parts) and all(map(_fits, value, parts))
    if hint is float:
        return type(value) in (int, float) and abs(value) <= sys.float_info.max
    return hint not in (bool, int, str, Tensor, types.NoneType) or type(value) is hint


def _described(value: Any) -> str:
    """Describe a value from an untrusted file in one short line."""
    return f"a tensor {list(value.shape)} of {value.dtype}" if isinstance(value, Tensor) else ascii(value)[:100]


def _require_shape(name: str, tensor: Tensor, shape: str, axes: dict[str, int], dtype: torch.dtype) -> None:
    """Check a tensor against a shape such as "d r", and add the sizes of new letters to `axes`."""
    letters = shape.split()
    known = dict(zip(letters, tensor.shape, strict=False)) | axes
    if tensor.ndim != len(letters) or list(tensor.shape) != [known[letter] for letter in letters] or not axes["d"]:
        sizes = ", ".join(f"{letter}={axes[letter]}" for letter in dict.fromkeys(letters) if letter in axes)
        raise ValueError(f"its {name} has shape {list(tensor.shape)}: need [{', '.join(letters)}] with {sizes}")
    if dtype not in FLOATING or tensor.dtype != dtype:
        raise ValueError(f"its {name} is of {tensor.dtype}: need floating numbers, of the mean's type")
    if not tensor.isfinite().all():
        raise ValueError(f"its {name} has values that are not finite")
    axes.update(known)
