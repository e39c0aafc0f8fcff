"""Autocast is switched off where erasers and their statistics are computed: it would round them to half precision."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

_DEVICE_TYPES = ("cpu", "cuda", "xpu", "mps")

P = ParamSpec("P")
R = TypeVar("R")


def without_autocast(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that computes in the precision of its tensors, also inside `torch.autocast`."""

    @functools.wraps(function)
    def exact(*args: P.args, **kwargs: P.kwargs) -> R:
        for device_type in _DEVICE_TYPES:
            if torch.is_autocast_enabled(device_type):
                with torch.autocast(device_type, enabled=False):
                    return exact(*args, **kwargs)
        return function(*args, **kwargs)

    return exact
