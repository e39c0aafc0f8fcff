"""Modes of torch that a caller may have switched on, and that results must not depend on: autocast, inference mode."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import torch

_DEVICE_TYPES = ("cpu", "cuda", "xpu", "mps")

P = ParamSpec("P")
R = TypeVar("R")


def without_autocast(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that computes in the precision of its tensors inside `torch.autocast` as well.

    Autocast would round erasers and their statistics to half precision.
    """

    @functools.wraps(function)
    def exact(*args: P.args, **kwargs: P.kwargs) -> R:
        for device_type in _DEVICE_TYPES:
            if torch.is_autocast_enabled(device_type):
                with torch.autocast(device_type, enabled=False):
                    return exact(*args, **kwargs)
        return function(*args, **kwargs)

    return exact


@contextmanager
def ordinary_tensors() -> Iterator[None]:
    """Make ordinary tensors, which can be changed and which autograd accepts, inside `torch.inference_mode` as well."""
    with torch.inference_mode(False), torch.no_grad():
        yield
