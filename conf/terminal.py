"""Text that may quote other people's words, made safe for the terminal and for log files."""

import logging
import sys


def printable(text: str, *, lines: bool = False) -> str:
    """Return text without what would steer the terminal, or cannot be encoded.

    Args:
        text: possibly somebody else's.
        lines: whether it keeps its line breaks.
    """
    return "".join(c if c.isprintable() or (lines and c == "\n") else " " for c in text)


class PrintableFormatter(logging.Formatter):
    """A formatter of log records, whose values may be anybody's."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), lines=True)


def show_log(level: int, *, force: bool = False) -> None:
    """Show log records from a level on, on stderr; with `force` in place of what was set up before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter("%(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=force)
