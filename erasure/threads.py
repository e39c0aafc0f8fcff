"""The number of threads of torch, by the size of a computation.

Threads synchronise after every operation. If other processes run on the same cores, this takes longer than a small
operation, so small computations run on one thread. The number depends on sizes only and never on the load of the
machine, because results must not depend on it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

MULTIPLY_ADDS_PER_THREAD = 5e8  # of a step; measured by scripts.benchmarks.stacking --threads 2 (docs/benchmarks.md)

_allowed: ContextVar[int | None] = ContextVar("allowed", default=None)  # the number outside all blocks


@contextmanager
def threads_for(multiply_adds: float) -> Iterator[None]:
    """Run a block on a number of threads in proportion to its work, at least one and at most torch's setting.

    The setting is restored afterwards. A nested block has its own number, which may be larger than the outer one.

    Args:
        multiply_adds: multiply-adds of one step of the computation, such as a forward pass of one batch.
    """
    before, outer = torch.get_num_threads(), _allowed.get()
    allowed = before if outer is None else outer
    token = _allowed.set(allowed)
    torch.set_num_threads(max(1, int(min(allowed, multiply_adds / MULTIPLY_ADDS_PER_THREAD))))
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _allowed.reset(token)
