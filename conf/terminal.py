"""Text made safe for the terminal and for log files: it may quote untrusted files."""

import contextlib
import io
import logging
import sys


def printable(text: str, *, lines: bool = False) -> str:
    """Return text with a blank for each control character and each character that cannot be encoded.

    Args:
        text: possibly untrusted.
        lines: whether line breaks stay.
    """
    return "".join(c if c.isprintable() or (lines and c == "\n") else " " for c in text)


class PrintableFormatter(logging.Formatter):
    """A formatter of log records, whose values may be untrusted."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), lines=True)


class _FirstOfEach(logging.Filter):
    """A filter that lets a message pass once, as the runs of a sweep say the same of their dataset."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        first = message not in self._shown
        self._shown.add(message)
        return first


def show_log(level: int, *, force: bool = False) -> None:
    """Show log records of a level and above on stderr, each message once; with `force` instead of earlier handlers.

    Hydra's are shown from warnings on. What --info asks for it logs itself, on stdout: its loggers keep their level.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(level)
    handler.addFilter(lambda record: not record.name.startswith("hydra.") or record.levelno >= logging.WARNING)
    handler.setFormatter(PrintableFormatter("%(message)s"))
    handler.addFilter(_FirstOfEach())
    logging.basicConfig(level=level, handlers=[handler], force=force)


def print_anywhere() -> None:
    """Print a question mark for each character that the terminal's encoding lacks, such as ±."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        with contextlib.suppress(OSError):  # what was printed before goes to a full disk, or nobody reads it
            sys.stdout.reconfigure(errors="replace")
