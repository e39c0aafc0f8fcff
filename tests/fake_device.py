"""A device that is not there: tensors that claim to be on it, and a count of what makes the host wait for it.

Their values lie on the CPU, so that everything computes what it computes there; but an operation that takes a tensor of
theirs and one of the CPU's fails as it does on a GPU, which catches a forgotten `.to()`, generator or mask. Not to be
used here, as it happens behind a mode's back: changing a tensor's shape in place (`vector @ matrix` does; write
`(vector[None] @ matrix)[0]`), and indexing by a list of integers.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Self
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")  # the only one that needs no driver; within `Device` its tensors have values
_COPIES = ("_to_copy", "copy_")
_INDEXING = ("index", "index_put_")  # by a mask, whose true entries have to be counted, or from the CPU
_READS = ("_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select", "_unique2", "bincount")


class Elsewhere(Tensor):
    """A tensor that claims to be on `DEVICE`; `cpu_values` has its values."""

    cpu_values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> "Elsewhere":
        layout = {"strides": values.stride(), "storage_offset": values.storage_offset()}
        wrapper = Tensor._make_wrapper_subclass(cls, values.shape, **layout, dtype=values.dtype, device=DEVICE)
        wrapper.cpu_values = values
        return wrapper

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} on {DEVICE}: within `Device` only")


class Device(TorchDispatchMode):
    """Within it `DEVICE` can be used as any device.

    Attributes:
        waits: what the host has waited for, by operation: values and sizes read, and copies from the device, or to it
            unless they need not be waited for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._lift = mock.patch("torch.tensor", _lifted)  # which makes its tensor behind a mode's back
        self._lift.start()
        return super().__enter__()

    def __exit__(self, *ended: Any) -> None:
        super().__exit__(*ended)
        self._lift.stop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        name, kwargs = func.overloadpacket.__name__, dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        ours = {id(tensor.cpu_values): tensor for tensor in tensors if isinstance(tensor, Elsewhere)}
        there = bool(ours)  # where the result will be
        if kwargs.get("device") is not None:
            there = kwargs["device"].type == DEVICE.type
            kwargs["device"] = torch.device("cpu")
        elif name == "copy_":
            there = isinstance(args[0], Elsewhere)
        if name not in _COPIES:
            _require_one_device(name, args[:1] if name == "index" else tensors)
        elsewhere = {isinstance(tensor, Elsewhere) for tensor in tensors}
        by = [one for one in args[1] if one is not None] if name in _INDEXING else []
        masked = any(one.dtype == torch.bool or not isinstance(one, Elsewhere) for one in by)
        copied = name in _COPIES and elsewhere != {there} and not (there and kwargs.get("non_blocking"))
        if ((name in _READS or masked) and ours) or copied:
            self.waits[name] += 1
        result = func(*tree_map(_cpu_values, args), **tree_map(_cpu_values, kwargs))
        if not there:
            return result
        # an operation in place gives back the tensor that it was given
        return tree_map(lambda leaf: _claimed(leaf, ours) if isinstance(leaf, Tensor) else leaf, result)


_TENSOR = torch.tensor


def _lifted(data: Any, *, device: torch.device | None = None, **options: Any) -> Tensor:
    return _TENSOR(data, **options).to(device or "cpu")


def _cpu_values(leaf: Any) -> Any:
    return leaf.cpu_values if isinstance(leaf, Elsewhere) else leaf


def _claimed(values: Tensor, known: dict[int, Elsewhere]) -> Elsewhere:
    return known[id(values)] if id(values) in known else Elsewhere(values)


def _require_one_device(name: str, tensors: Sequence[Tensor]) -> None:
    others = [list(one.shape) for one in tensors if not isinstance(one, Elsewhere) and one.ndim]
    if others and any(isinstance(one, Elsewhere) for one in tensors):  # a single number of the CPU's may go along
        raise RuntimeError(f"{name}: tensors of shapes {others} are on the CPU, others are not")
