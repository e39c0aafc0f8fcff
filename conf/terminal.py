"""Text made safe for the terminal and for log files: it may quote untrusted files."""

import contextlib
import io
import logging
import sys


def printable(text: str, *, lines: bool = False) -> str:
    """Return text with a blank for each control character and each character that cannot be encoded.

    Args:
        text: possibly untrusted text.
        lines: whether to keep line breaks.
    """
    return "".join(c if c.isprintable() or (lines and c == "\n") else " " for c in text)


class PrintableFormatter(logging.Formatter):
    """A formatter for log records with possibly untrusted values."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), lines=True)


def show_log(level: int, *, force: bool = False) -> None:
    """Show log records of a level and above on stderr, each message once; `force` replaces earlier handlers.

    The runs of a sweep repeat the messages about their dataset. Hydra's records are shown from warnings on. The levels
    of Hydra's loggers do not change, because Hydra logs the output of --info itself, on stdout.
    """
    shown = set[str]()

    def is_new(record: logging.LogRecord) -> bool:
        count = len(shown)
        shown.add(record.getMessage())
        return len(shown) > count

    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(level)
    handler.addFilter(lambda record: not record.name.startswith("hydra.") or record.levelno >= logging.WARNING)
    handler.setFormatter(PrintableFormatter("%(message)s"))
    handler.addFilter(is_new)
    logging.basicConfig(level=level, handlers=[handler], force=force)


def print_anywhere() -> None:
    """Make stdout print a question mark for each character that its encoding lacks, such as ±."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        with contextlib.suppress(OSError):  # what was printed before goes to a full disk, or nobody reads it
            sys.stdout.reconfigure(errors="replace")
