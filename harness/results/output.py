"""A sweep's tables on the terminal and in files, and names of files."""

import re
from collections.abc import Sequence
from pathlib import Path

from erasure.store.storage import fingerprint, write_text
from harness.results.table import Table, csv_of, markdown

_LONGEST_NAME = 150  # characters


def file_name(text: str) -> str:
    """Return text as a file's name without an ending: its ASCII words, and a digest where any are left out."""
    words = "-".join(re.sub(r"[^A-Za-z0-9_.]", " ", text).split()).lstrip(".")
    whole = 0 < len(words) <= _LONGEST_NAME and all(c.isascii() for c in text if c.isalnum())
    return words if whole else f"{words[:_LONGEST_NAME]}-{fingerprint(text, 8)}"


def show(tables: Sequence[Table], path: Path) -> None:
    """Print tables of several settings, and write them to `path` as printed, with every column unrounded as CSV."""
    parts = []
    for table in tables:
        table.show()
        parts += [f"## {markdown(table.title)}", table.markdown(), markdown(table.caption)]
    write_text(path, "\n\n".join([*parts, ""]))
    records = [{"setting": table.title, **record} for table in tables for record in table.records]
    write_text(path.with_suffix(".csv"), csv_of(records))
    print(f"tables: {path}, {path.with_suffix('.csv')} (every column)")
