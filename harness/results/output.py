"""A sweep's tables on the terminal and in files, and names of files."""

import re
from collections.abc import Sequence
from pathlib import Path

from erasure.store.checked_files import fingerprint, write_text
from harness.results.table import Table, csv_of, markdown

_LONGEST_NAME = 150  # characters


def file_name(text: str) -> str:
    """Return text as a file's name without an ending: its ASCII words, and a digest where any are left out."""
    words = "-".join(re.sub(r"[^A-Za-z0-9_.]", " ", text).split()).lstrip(".")
    whole = 0 < len(words) <= _LONGEST_NAME and all(c.isascii() for c in text if c.isalnum())
    return words if whole else f"{words[:_LONGEST_NAME]}-{fingerprint(text, 8)}"


def markdown_of(tables: Sequence[Table]) -> str:
    """Return tables, each below its title and above its caption."""
    parts = [part for t in tables for part in (f"## {markdown(t.title)}", t.markdown(), markdown(t.caption))]
    return "\n\n".join([*parts, ""])


def show(tables: Sequence[Table], path: Path) -> None:
    """Print tables, and write them to `path` as printed."""
    for table in tables:
        table.show()
    write_text(path, markdown_of(tables))
    print(f"tables: {path}")


def show_settings(tables: Sequence[Table], path: Path) -> None:
    """Print and write the tables of several settings, and a CSV of them all with every column unrounded."""
    show(tables, path)
    records = [{"setting": table.title, **record} for table in tables for record in table.records]
    write_text(path.with_suffix(".csv"), csv_of(records))
    print(f"every column: {path.with_suffix('.csv')}")
