"""A sweep's tables and figure. That costs seconds to draw, and is drawn once: launched again, it copies its own."""

import functools
import inspect
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from erasure.store.storage import fingerprint, replacing, write_text
from harness import labels, style
from harness.result import Result, as_json
from harness.table import Table, csv_of


def drawn_once(draw: functools.partial[Any], path: Path, results: Sequence[Result]) -> Path:
    """Draw `results` to `path`, or copy what the same code drew of the same results before.

    Args:
        draw: draws to the path it is given; the text of its module stands for what it draws.
        path: of the figure, with a PDF beside it; those of other sweeps are kept beside its folder, in `.figures`.
    """
    code = [inspect.getsource(module) for module in (inspect.getmodule(draw.func), style, labels) if module]
    kept = path.parent.parent / ".figures" / fingerprint([as_json(results), code])
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


def show(tables: Mapping[str, Table], draw: functools.partial[Any], path: Path, results: Sequence[Result]) -> None:
    """Print tables by setting, and write them beside the figure that `draw` makes of the results at `path`.

    table.md is as on the terminal; table.csv has a line per run with every column, unrounded.
    """
    for setting, table in tables.items():
        table.show(setting)
    parts = [part for setting, table in tables.items() for part in (f"## {setting}", table.markdown(), table.caption)]
    written = [path.with_name("table.md"), path.with_name("table.csv")]
    write_text(written[0], "\n\n".join([*parts, ""]))
    records = [{"setting": setting, **record} for setting, table in tables.items() for record in table.records]
    write_text(written[1], csv_of(records))
    print(f"figure: {drawn_once(draw, path, results)}\ntables: {', '.join(map(str, written))} (every column)")
