"""Progress of long computations: a bar with the time left, or plain lines without a terminal."""

import sys
import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

_BAR_AFTER_S = 1.0  # what is done before needs none
_PLAIN_EVERY_S = 10.0
_PLAIN_WIDTH = 120  # columns for tables where there is no terminal to ask


def console(min_width: int = 0) -> Console:
    """Return standard output, wide enough for tables when it goes to a file or a pipe."""
    found = Console()
    return found if found.is_terminal else Console(width=max(_PLAIN_WIDTH, min_width))


class Display:
    """Progress of one run on stderr, as a share of work done, with the time left at the pace so far."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._console = Console(stderr=True)
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        self._started = self._last_line = time.monotonic()
        return self

    def update(self, done: float, detail: str) -> None:
        """Show that the share `done` (0..1) of the work is finished, and what is being done."""
        now = time.monotonic()
        elapsed = now - self._started
        left = f"{duration(elapsed * (1 - done) / done)} left" if done > 0.01 and elapsed > 1 else ""
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
    """2:05, 1:02:05."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02}:{s:02}" if hours else f"{m}:{s:02}"
