"""Modes of torch that a caller may have switched on, and that results must not depend on."""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import ParamSpec, TypeVar

import torch

_DEVICE_TYPES = ("cpu", "cuda", "xpu", "mps")

_default_dtypes: list[torch.dtype] = []  # before each block of `default_modes` of any thread; the first is the caller's
_LOCK = threading.Lock()

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
def default_modes() -> Iterator[None]:
    """Compute in torch's default modes: gradients on, float32, on the CPU, without autocast or inference mode.

    The default dtype is one for all threads: the first block changes it, and the last one restores it.
    """
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device_type in filter(torch.is_autocast_enabled, _DEVICE_TYPES):
            stack.enter_context(torch.autocast(device_type, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        with _LOCK:
            _default_dtypes.append(torch.get_default_dtype())
            torch.set_default_dtype(torch.float32)
        stack.callback(_restore_default_dtype)
        yield


def _restore_default_dtype() -> None:
    with _LOCK:
        dtype = _default_dtypes.pop()
        if not _default_dtypes:
            torch.set_default_dtype(dtype)


@contextmanager
def ordinary_tensors() -> Iterator[None]:
    """Make ordinary tensors, which can be changed and which autograd accepts, inside `torch.inference_mode` as well."""
    with torch.inference_mode(False), torch.no_grad():
        yield
