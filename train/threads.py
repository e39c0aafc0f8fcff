"""Independent trainings side by side, each in a thread of its own, which shares the processor's cores."""

from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from threading import Event
from typing import TypeVar

import torch

T = TypeVar("T")


class _AnotherFailedError(Exception):
    """Ends a thread whose result nobody waits for."""


def in_threads(work: Callable[[int, Callable[[], None]], T], count: int) -> list[T]:
    """The results of work(0, check), ..., work(count - 1, check), computed at the same time.

    PyTorch's operations let go of the interpreter, and small ones gain little from several cores: threads with a
    part of the cores each finish sooner than one after another with all of them.

    Args:
        work: calls `check` often; it raises once the work of another thread has failed.
        count: number of threads.

    Raises:
        BaseException: the first that any work raised.
    """
    stop = Event()

    def check() -> None:
        if stop.is_set():
            raise _AnotherFailedError

    cores_each = max(1, torch.get_num_threads() // count)
    with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(cores_each,)) as pool:
        futures = [pool.submit(work, i, check) for i in range(count)]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()  # all that is left to end is what failed
    for error in (future.exception() for future in futures):
        if error is not None and not isinstance(error, _AnotherFailedError):
            raise error
    return [future.result() for future in futures]
