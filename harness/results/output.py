"""A sweep's tables and figure. That costs seconds to draw, and is drawn once: launched again, it copies its own."""

import functools
import importlib.metadata
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from erasure.store.storage import fingerprint, replacing, write_text
from harness.result import Result, as_json
from harness.results.table import Table, csv_of, markdown

_LONGEST = 150  # characters of a file's name
_CODE = (".py", ".yaml")


def file_name(text: str) -> str:
    """Return text as a file's name without an ending: its ASCII words, and a digest where any are left out."""
    words = "-".join(re.sub(r"[^A-Za-z0-9_.]", " ", text).split()).lstrip(".")
    whole = 0 < len(words) <= _LONGEST and all(c.isascii() for c in text if c.isalnum())
    return words if whole else f"{words[:_LONGEST]}-{fingerprint(text, 8)}"


def drawn_once(draw: functools.partial[Any], path: Path, results: Sequence[Result]) -> Path:
    """Draw `results` to `path`, or copy what the same code drew of the same results before.

    Args:
        draw: draws to the path it is given.
        path: of the figure, with a PDF beside it; those of other sweeps are kept beside its folder, in `.figures`.
        results: all that is drawn.
    """
    drawing = [draw.func.__module__, *drawing_code(draw.func.__module__)]
    kept = path.parent.parent / ".figures" / fingerprint([as_json(results), *drawing])
    pairs = [(path.with_suffix(kind), kept.with_name(f"{kept.name}{kind}")) for kind in (path.suffix, ".pdf")]
    if all(copy.exists() for _, copy in pairs):
        for drawn, copy in pairs:
            shutil.copyfile(copy, drawn)
        return path
    draw(path)
    for drawn, copy in pairs:
        with replacing(copy) as temporary:
            shutil.copyfile(drawn, temporary)
    return path


def drawing_code(module: str) -> list[str]:
    """Return all that determines how a module draws: its package, what every figure shares, and matplotlib's version.

    Packages are taken whole: which of their files a figure comes from changes with them.
    """
    root = Path(__file__).parents[2]
    packages = ("conf", "harness", module.partition(".")[0])
    files = sorted(path for package in packages for path in (root / package).rglob("*") if path.suffix in _CODE)
    return [importlib.metadata.version("matplotlib"), *(path.read_text(encoding="utf-8") for path in files)]


def show(
    tables: Mapping[str, Table],
    draw: functools.partial[Any],
    path: Path,
    results: Sequence[Result],
    name: str = "table",
) -> None:
    """Print tables by setting, and write them beside the figure that `draw` makes of the results at `path`.

    table.md (or another name) is as on the terminal; table.csv has every column, unrounded.
    """
    for setting, table in tables.items():
        table.show(setting)
    parts = [
        part
        for setting, table in tables.items()
        for part in (f"## {markdown(setting)}", table.markdown(), markdown(table.caption))
    ]
    written = [path.with_name(f"{name}.md"), path.with_name(f"{name}.csv")]
    write_text(written[0], "\n\n".join([*parts, ""]))
    records = [{"setting": setting, **record} for setting, table in tables.items() for record in table.records]
    write_text(written[1], csv_of(records))
    print(f"figure: {drawn_once(draw, path, results)}\ntables: {', '.join(map(str, written))} (every column)")
