"""Signals that end a run at once, or once its state is saved."""

import functools
import os
import signal

import pytest

from harness.interruption import interruptible


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT])
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


def test_another_handler_is_called_and_may_let_the_training_go_on() -> None:
    """submitit's handler queues the job again."""
    called: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, _: called.append(number))
    try:
        with interruptible() as interruption:
            os.kill(os.getpid(), signal.SIGUSR2)
            assert interruption.pending == signal.SIGUSR2
            assert not called
            interruption.deliver()
            assert called == [signal.SIGUSR2]
    finally:
        signal.signal(signal.SIGUSR2, before)
