"""Signals that end a run, held back until its checkpoint is saved."""

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

log = logging.getLogger(__name__)

# Ctrl-C, a closed terminal, a cluster's kill, and two signals by which clusters announce one
SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class Interruption:
    """The signal that has arrived, if any, and the previous handlers."""

    def __init__(self, *, at_once: bool = False) -> None:
        self.pending: int | None = None
        self._at_once = at_once
        self._before: dict[int, Any] = {}

    def deliver(self) -> None:
        """Apply the pending signal: call the previous handler or, if there is none, end the run.

        Raises:
            KeyboardInterrupt: on Ctrl-C.
            SystemExit: on another signal without a handler, with the shell's exit code, 128 + its number.
        """
        number, self.pending = self.pending, None
        assert number is not None
        before = self._before.get(number, signal.SIG_DFL)
        if callable(before):  # Python's handler of Ctrl-C, or submitit's, which requeues the job
            before(number, None)
        else:
            _end(number)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.pending == number == signal.SIGINT:  # a second Ctrl-C ends the run at once
            raise KeyboardInterrupt
        self.pending = number
        if self._at_once:
            self.deliver()
        else:
            log.warning("%s: stopping once the training's state is saved", signal.Signals(number).name)


@contextlib.contextmanager
def interruptible(*, at_once: bool = False) -> Iterator[Interruption]:
    """Hold back signals in a block: they set `pending`, and are delivered at the end of the block.

    Ignored signals stay ignored. Outside the main thread nothing changes.

    Args:
        at_once: whether to deliver signals immediately as exceptions, so that surrounding blocks exit normally. An
            inner block that holds back signals takes precedence.
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
