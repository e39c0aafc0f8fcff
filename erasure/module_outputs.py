"""Inputs and outputs of modules: finding the first tensor in them, and replacing it."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn


def named_module(model: nn.Module, name: str) -> nn.Module:
    """Return a module by its name in `model.named_modules()`, with or without the prefix of `torch.compile`.

    Raises:
        ValueError: no module has this name.
    """
    known = {plain_name(one): module for one, module in model.named_modules(remove_duplicate=False)}
    if (module := known.get(plain_name(name))) is None or not plain_name(name):
        names = [one for one in known if one]
        more = " …" if len(names) > 7 else ""
        raise ValueError(f"the network has no module {name!r}; it has {', '.join(names[:7])}{more}")
    return module


def plain_name(name: str) -> str:
    """Return the name of a module without the prefix of `torch.compile`."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def call(model: nn.Module, x: Any) -> Any:
    """Call a network with one input, or with the entries of a mapping as its keyword arguments."""
    return model(**x) if isinstance(x, Mapping) else model(x)


def first_tensor(values: Any, name: str) -> Tensor:
    """Return the first tensor of the input or output of a module: of a tuple, a list or a mapping.

    Raises:
        ValueError: the first value is no ordinary tensor of floating numbers; the error calls the module `name`.
    """
    first = values
    if isinstance(values, Mapping):
        first = next(iter(values.values()), None)
    elif isinstance(values, tuple | list):
        first = values[0] if values else None
    if not isinstance(first, Tensor) or not first.is_floating_point():
        kind = f"a tensor of {first.dtype}" if isinstance(first, Tensor) else type(first).__name__
        raise ValueError(f"{name}: the first of its states is {kind}, expected floating numbers: name a module within")
    if first.is_nested:  # which torch.nn.TransformerEncoder makes of padded texts
        raise ValueError(
            f"{name}: its states are a nested tensor: build the network with enable_nested_tensor=False, or call "
            "torch.backends.mha.set_fastpath_enabled(False)"
        )
    return first


def mapped(values: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to all values in nested tuples, lists and mappings."""
    if isinstance(values, Mapping):
        copied: Any = copy.copy(values)
        for key, value in values.items():
            copied[key] = mapped(value, function)
        return copied
    if isinstance(values, tuple | list):
        several = [mapped(value, function) for value in values]
        return values._make(several) if hasattr(values, "_make") else type(values)(several)  # pyright: ignore
    return function(values)


def leaves(values: Any) -> list[Any]:
    """Return all values in nested tuples, lists and mappings."""
    found: list[Any] = []
    mapped(values, found.append)
    return found


def close(a: Tensor, b: Tensor, relative: float) -> bool:
    """Return whether two tensors differ by at most a tolerance relative to the largest finite value of `a`."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = a.double(), b.double()
    largest = float(a[a.isfinite()].abs().amax()) if a.isfinite().any() else 0.0
    return bool(torch.isclose(a, b, rtol=0, atol=relative * largest, equal_nan=True).all())


def replaced(values: Any, old: Tensor, new: Tensor) -> Any:
    """Return the input or output of a module with one tensor replaced by another."""
    return new if values is old else mapped(values, lambda value: new if value is old else value)
