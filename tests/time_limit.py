"""A time limit for code that may hang."""

import contextlib
import signal
from collections.abc import Iterator
from typing import Any


class HangError(BaseException):
    """The code took too long; no reader's `except Exception` may take it for damage."""


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise HangError in the block after so many seconds; in the main thread alone."""

    def ring(*_: Any) -> None:
        raise HangError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
