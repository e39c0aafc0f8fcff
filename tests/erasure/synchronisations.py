"""How often an operation makes the processor wait for the device: each is a stop of a GPU's queue."""

from collections import Counter
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_INDEXING = ("aten::index", "aten::index_put_")  # with a mask
_WAITING = ("aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::_unique2", "aten::masked_select")


class Synchronisations(TorchDispatchMode):
    """Counts, within its context, the operators whose result the processor has to know: numbers, booleans, sizes.

    Found on any device: `.item()`, `float(x)`, `if x`, and indexing with a mask; not `.tolist()` and `.cpu()`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_operator: Counter[str] = Counter()

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    @property
    def count(self) -> int:
        return self.by_operator.total()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        masks = [i for i in args[1] if i is not None and i.dtype == torch.bool] if name in _INDEXING else []
        if name in _WAITING or masks:
            self.by_operator[name] += 1
        return func(*args, **(kwargs or {}))
