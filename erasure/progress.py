"""Progress of long computations, reported by numerical code and shown as a bar or as plain lines."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

_BAR_AFTER_S = 1.0  # shorter work shows no bar
_PLAIN_EVERY_S = 10.0
_PLAIN_WIDTH = 120  # columns of tables that do not go to a terminal

Show = Callable[[float, str], object]  # fraction done, and the current task

_callback: ContextVar[Callable[[str, float, str], object] | None] = ContextVar("progress callback", default=None)


def hidden(*_: object) -> None:
    """Show nothing."""


@contextmanager
def on_progress(callback: Callable[[str, float, str], object]) -> Iterator[None]:
    """Call `callback(title, done, detail)` during fits and erasures, which otherwise show no progress.

    The fraction `done` of the computation called `title` goes from 0 to 1; `detail` says what is being computed.

    Example:
        >>> import torch
        >>> from erasure import QleaceEraser, on_progress
        >>> x, z = torch.randn(60, 4), torch.arange(60) % 3
        >>> titles = set()
        >>> with on_progress(lambda title, done, detail: titles.add(title)):
        ...     eraser = QleaceEraser.fit(x, z)
        >>> titles
        {'barycenter of class covariances'}
    """
    token = _callback.set(callback)
    try:
        yield
    finally:
        _callback.reset(token)


def report_progress(title: str, done: float, detail: str) -> None:
    """Report the fraction `done` of a computation to the callback of `on_progress`, if there is one."""
    callback = _callback.get()
    if callback is not None:
        callback(title, done, detail)


@contextmanager
def shown_progress() -> Iterator[None]:
    """Show the progress of numerical code on stderr, one computation at a time."""
    display: Display | None = None

    def show(title: str, done: float, detail: str) -> None:
        nonlocal display
        if display is None or display.title != title:
            if display is not None:
                display.__exit__()
            display = Display(title).__enter__()
        display.update(done, detail)

    with on_progress(show):
        try:
            yield
        finally:
            if display is not None:
                display.__exit__()


def console(min_width: int = 0) -> Console:
    """Return standard output, wide enough for tables when it goes to a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=max(_PLAIN_WIDTH, min_width))


def part_of(show: Show, begin: float, end: float, named: str = "") -> Show:
    """Return a function that shows the progress of a part of the work, from 0 to 1, as progress of the whole."""
    return lambda done, what: show(begin + (end - begin) * done, named + what)


class Display:
    """Progress of one run on stderr: the fraction done, and the time left at the rate since the first update."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._first: tuple[float, float] | None = None  # time and share of the first update

    def __enter__(self) -> Self:
        self._started = self._last_line = time.monotonic()
        return self

    def update(self, done: float, detail: str) -> None:
        """Show the fraction `done` (0..1) of the work, and the current task."""
        now = time.monotonic()
        elapsed = now - self._started
        since, before = self._first = self._first or (now, done)
        measured = done - before > 0.002 and now - since > 1
        left = f"{duration((now - since) * (1 - done) / (done - before))} left" if measured else ""
        if self._console.is_terminal:
            if self._bar is None and elapsed > _BAR_AFTER_S:
                self._bar = self._begin()
            if self._bar is not None:
                self._bar.update(self._task, completed=done, description=f"{self.title}  {detail}", left=left)
        elif now - self._last_line >= _PLAIN_EVERY_S:
            self._last_line = now
            print(f"{self.title}  {detail}  {done:.0%}  {left}".rstrip(), file=sys.stderr, flush=True)

    def _begin(self) -> Progress:
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            transient=True,
        )
        bar.start()
        self._task = bar.add_task(self.title, total=1.0, left="")
        return bar

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def duration(seconds: float) -> str:
    """Format a duration as 2:05 or 1:02:05."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02}:{s:02}" if hours else f"{m}:{s:02}"
