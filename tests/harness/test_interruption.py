"""Signals that end a run at once, or once its state is saved."""

import functools
import signal

import pytest

from harness.interruption import interruptible


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT])
def test_at_once_a_signal_ends_the_block_as_an_exception(number: signal.Signals, request) -> None:
    expected = KeyboardInterrupt if number == signal.SIGINT else SystemExit
    default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL  # a shell's & ignores SIGINT
    request.addfinalizer(functools.partial(signal.signal, number, signal.signal(number, default)))

    def block() -> None:
        with interruptible(at_once=True):
            signal.raise_signal(number)
            raise AssertionError("went on")

    with pytest.raises(expected) as ended:
        block()
    if isinstance(ended.value, SystemExit):
        assert ended.value.code == 128 + number


def test_a_block_that_waits_takes_precedence_and_delivers_to_the_one_around_it() -> None:
    order = []

    def block() -> None:
        with interruptible(at_once=True), interruptible() as waiting:
            signal.raise_signal(signal.SIGUSR1)
            order.append(waiting.pending)
            waiting.deliver()
            order.append("went on")

    with pytest.raises(SystemExit):
        block()
    assert order == [signal.SIGUSR1]
