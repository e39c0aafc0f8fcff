"""The number of torch's threads, by the size of a computation.

Threads meet after every operation. Where other processes run on the same cores, a thread that has finished waits until
the others get their turn, which takes longer than a small operation. A small computation therefore runs on one thread.
The number follows from sizes alone, and never from the load of the machine, on which results must not depend.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

MULTIPLY_ADDS_PER_THREAD = 5e8  # of a step; measured by scripts.benchmarks.stacking --threads 2 (docs/benchmarks.md)

_allowed: ContextVar[int | None] = ContextVar("allowed", default=None)  # the number outside all blocks


@contextmanager
def threads_for(multiply_adds: float) -> Iterator[None]:
    """Let torch compute the block on as many threads as its work is worth, at least one.

    The number that torch had before is the most, and is restored. A block within a block has a number of its own, which
    may be larger than that of the outer one.

    Args:
        multiply_adds: products of a step of the computation, such as a forward pass of one batch.
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
