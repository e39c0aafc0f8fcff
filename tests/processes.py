"""Processes that tests start: one server imports what they need, and every one is forked from it."""

import multiprocessing
import signal
from collections.abc import Callable
from typing import Any

PROCESSES = multiprocessing.get_context("forkserver")
LIBRARY = ("pytest", "erasure.pipeline", "erasure.datasets.digits", "erasure.store.cache", "sklearn.datasets")
# passed over where the library alone is installed
HARNESS = ("tests.train.killed_run", "mdl.block_code", "mdl.replay_code")
PROCESSES.set_forkserver_preload([*LIBRARY, *HARNESS])


def answer(run: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in a process of its own."""
    with PROCESSES.Pool(1) as pool:
        return pool.apply(run, arguments)


def require_killed(run: Callable[..., Any], *arguments: Any) -> None:
    """Run a function in a process of its own, which has to end by SIGKILL."""
    process = PROCESSES.Process(target=run, args=arguments)
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
