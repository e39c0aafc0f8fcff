"""Signals that end a run, held back until its state is saved."""

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

log = logging.getLogger(__name__)

# Ctrl-C; a cluster's kill; a cluster's notice, one or the other
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class Interruption:
    """The signal that has arrived, if any, and the handlers that were there before."""

    def __init__(self, *, at_once: bool = False) -> None:
        self.pending: int | None = None
        self._at_once = at_once
        self._before: dict[int, Any] = {}

    def deliver(self) -> None:
        """Do what the pending signal would have done: another's handler is called, otherwise the run ends.

        Raises:
            KeyboardInterrupt: Ctrl-C.
            SystemExit: the others, with the shell's exit code, 128 + number; unless another handler returns.
        """
        number, self.pending = self.pending, None
        assert number is not None
        before = self._before.get(number, signal.SIG_DFL)
        if callable(before):  # Python's own for Ctrl-C; submitit's, which queues the job again
            before(number, None)
        else:
            _end(number)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.pending == number == signal.SIGINT:  # a second Ctrl-C does not want to wait
            raise KeyboardInterrupt
        self.pending = number
        if self._at_once:
            self.deliver()
        else:
            log.warning("%s: stopping once the training's state is saved", signal.Signals(number).name)


@contextlib.contextmanager
def interruptible(*, at_once: bool = False) -> Iterator[Interruption]:
    """Let signals only set `pending`; ignored ones, and those outside the main thread, are left as they are.

    A signal that is still pending at the end of the block is delivered then.

    Args:
        at_once: deliver signals when they come, as exceptions: nothing has to be saved, but blocks around this
            one are left in order. A block within it that waits takes precedence.
    """
    interruption = Interruption(at_once=at_once)
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    for number in (number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN):
        interruption._before[number] = signal.signal(number, interruption._note)
    try:
        yield interruption
    finally:
        for number, handler in interruption._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
    if interruption.pending is not None:
        interruption.deliver()


def _end(number: int) -> NoReturn:
    log.warning("interrupted: launch the same command again to continue")
    raise SystemExit(128 + number)
