"""python -m scripts.cache report|clear: list or delete the files in the cache of datasets."""

import argparse
import functools
import math
import os
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from conf.command_process import exit_code
from conf.terminal import printable
from erasure.progress import console
from erasure.store.atomic_files import remove
from erasure.store.cache import Cache, CachedFile
from scripts.command_line import argument_parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("cache", __doc__)
    parser.add_argument("action", choices=["report", "clear"])
    parser.add_argument("--cache-dir", type=Path, default=Path("cache"), help="default: %(default)s")
    parser.add_argument("--match", default="*", metavar="PATTERN", help="only names that match, e.g. 'cifar10-*'")
    parser.add_argument("--older-than", type=float, default=0.0, metavar="DAYS", help="only files not written since")
    parser.add_argument("--only", choices=["entry", "damaged", "leftover"], help="only files of this kind")
    parser.add_argument("--yes", action="store_true", help="clear without asking")
    options = parser.parse_args(arguments)
    if not os.path.isdir(options.cache_dir):  # noqa: PTH112 (False for a name that is too long)
        parser.error(f"--cache-dir={options.cache_dir}: no such folder; a run's cache_dir is in its config.yaml")
    return exit_code(functools.partial(_carry_out, options), "", [])


def _carry_out(options: argparse.Namespace) -> int:
    # without a limit, show also what a file server whose clock is ahead has just stored
    newest = time.time() - 86400 * options.older_than if options.older_than else math.inf
    cached = list(Cache(options.cache_dir).files())
    files = [
        file
        for file in cached
        if fnmatchcase(file.path.name, options.match) and file.modified <= newest and options.only in (None, file.kind)
    ]
    if not files:
        print(f"{options.cache_dir} is empty" if not cached else f"none of the {len(cached)} files matches")
        return 0
    print_report(files)
    if options.action == "clear":
        if not options.yes and not agreed(f"delete these {len(files)} files?"):
            print("nothing deleted")
            return 1
        for file in files:
            remove(file.path)
        print(f"deleted {len(files)} files, {size(sum(file.size_bytes for file in files))}")
    return 0


def agreed(question: str) -> bool:
    """Ask for confirmation; without a terminal the answer is no."""
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


def print_report(files: Sequence[CachedFile]) -> None:
    """Print a line per file, largest first, and the sum."""
    table = Table(box=box.SIMPLE_HEAD, show_footer=True)
    table.add_column("file", f"{len(files)} files", overflow="fold")
    table.add_column("kind")
    table.add_column("size", size(sum(file.size_bytes for file in files)), justify="right")
    table.add_column("written", justify="right")
    for file in files:
        days = max(0.0, time.time() - file.modified) / 86400
        age = f"{days:.0f} days ago" if days >= 1 else f"{24 * days:.1f} h ago"
        table.add_row(Text(printable(file.path.name)), file.kind, size(file.size_bytes), age)
    console().print(table)


def size(size_bytes: float) -> str:
    """Format a size as in 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024 or unit == "GiB":
            break
        size_bytes /= 1024
    return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"


if __name__ == "__main__":
    raise SystemExit(main())
