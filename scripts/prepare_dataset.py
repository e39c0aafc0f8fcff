"""python -m scripts.prepare_dataset dataset=NAME [KEY=VALUE ...]: fetch, verify and convert a dataset for a job."""

import functools
import logging
import sys
import time
from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from conf.command_process import exit_code
from conf.compose import composed
from conf.groups import choices, without_config_dir
from conf.target_class import Target
from conf.terminal import printable, show_log
from erasure.dataset import MissingDataError, RawImages, Source
from erasure.image_cache import raw_images, raw_key
from erasure.progress import console
from erasure.splits import splits
from erasure.store.cache import Cache
from train.settings import TrainConfig

_HELP = """{doc}

  python -m scripts.prepare_dataset dataset=cifar10
  python -m scripts.prepare_dataset dataset=svhn dataset.root=/scratch/data cache_dir=/scratch/cache

Takes the keys of `python -m train`, and reads dataset.* and cache_dir. Choices of dataset=: {datasets}.
Prepared data is only verified. Exit codes: 0 ready, 1 could not be fetched or stored,
2 a configuration or data that cannot be used, 130 interrupted: launch the same command again to continue.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    show_log(logging.WARNING)
    overrides, _ = without_config_dir(sys.argv[1:] if arguments is None else arguments)
    if {"--help", "-h"} & set(overrides):
        print(_HELP.format(doc=__doc__, datasets=", ".join(choices("dataset"))), end="")
        return 0
    return exit_code(functools.partial(_prepare, overrides), "train", overrides)


def _prepare(overrides: Sequence[str]) -> int:
    started = time.monotonic()
    config = composed("train", overrides, TrainConfig)
    source, cache = Target(config.dataset, Source).build(), Cache(config.cache_dir)
    raw = prepare(source, cache)
    print_summary(source, raw, cache, time.monotonic() - started)
    return 0


def prepare(source: Source, cache: Cache) -> RawImages:
    """Load a dataset's images, from the cache or else from its files, which are fetched if missing or damaged.

    Raises:
        FetchError: the files could not be fetched.
        ValueError: the files are damaged.
    """
    try:
        return raw_images(source, cache)
    except MissingDataError as error:
        print(f"{error.problem}: fetching", file=sys.stderr, flush=True)
        source.fetch()
        return raw_images(source, cache)


def print_summary(source: Source, raw: RawImages, cache: Cache, seconds: float) -> None:
    """Print shape, cache file, splits, and the counts of every class."""
    parts = splits(source, raw)
    n, (c, h, w) = len(raw.train) + (len(raw.test) if raw.test else 0), raw.train.images.shape[1:]
    stored = "read as it is, without a copy in the cache"
    if source.slow_to_load:
        path = cache.path(raw_key(source))
        stored = f"{path}, {path.stat().st_size / 1e6:,.1f} MB"
    examples = f"vectors of {c} values" if h == w == 1 else f"images, {c}×{h}×{w}"
    ready = f"{len(raw.class_names)} classes, ready in {seconds:.1f} s"
    print(f"{printable(source.name)}: {n:,} {examples}, {ready}\n{stored}")
    table = Table(box=box.SIMPLE_HEAD, show_footer=True)
    table.add_column("class", "all")
    for name, part in parts.items():
        table.add_column(name, f"{len(part):,}", justify="right")
    counts = [part.labels.bincount(minlength=len(raw.class_names)).tolist() for part in parts.values()]
    for label, row in zip(raw.class_names, zip(*counts, strict=True), strict=True):
        table.add_row(Text(printable(label)), *(f"{count:,}" for count in row))
    console().print(table)


if __name__ == "__main__":
    raise SystemExit(main())
