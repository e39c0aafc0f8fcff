"""The same images under each eraser that a report's runs used: the paper's figures 1 and 2."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from conf.schema import ConfigError, Target
from erasure.eraser import Eraser
from erasure.pipeline import ErasedDataset, erased_dataset
from erasure.source import Source
from erasure.store.cache import Cache
from scripts.report.groups import eraser_order
from scripts.show_erasers import draw, require_images

Config = Mapping[str, Any]

_IMAGES = 10  # columns of a grid


def draw_grids(
    configs: Sequence[Config], cache_dir: str, directory: Path, progress: Callable[[int, int], None] = lambda *_: None
) -> tuple[list[Path], list[str]]:
    """A grid for each dataset, of training images; erased datasets come from the cache, or are computed into it.

    Args:
        configs: of finished runs.
        cache_dir: where erased datasets are kept.
        directory: of the report; grids go to `figures/<dataset>-erasers.png` and `.pdf`.
        progress: called with how many of how many datasets are drawn.

    Returns:
        The files, and a line for each dataset or eraser that cannot be had here.
    """
    by_dataset: dict[str, dict[str, Config]] = {}  # dataset section -> eraser -> the first configuration with both
    for config in configs:
        erasers = by_dataset.setdefault(json.dumps(config["dataset"], sort_keys=True), {})
        erasers.setdefault(config["eraser"]["name"], config)
    files: list[Path] = []
    problems: list[str] = []
    for i, erasers in enumerate(by_dataset.values()):
        progress(i, len(by_dataset))
        erased: dict[str, ErasedDataset] = {}
        for name in sorted(erasers, key=eraser_order):
            try:
                erased[name] = _erased(erasers[name], cache_dir)
            except (ValueError, KeyError, OSError) as error:
                problems.append(f"no images of {erasers[name]['dataset']['name']} under {name}: {error}")
        if erased:
            files += _draw(erased, next(iter(erasers.values()))["dataset"], directory / "figures", files)
    return files, problems


def _erased(config: Config, cache_dir: str) -> ErasedDataset:
    eraser = Target(config["eraser"])
    try:
        source = Target(config["dataset"]).build(Source)
    except TypeError as error:  # options of another version
        raise ConfigError(str(error)) from error
    dtype = getattr(torch, config["dtype"])
    erased = erased_dataset(source, eraser.resolve(Eraser), eraser.options, dtype=dtype, cache=Cache(cache_dir))
    require_images(erased)
    return erased


def _draw(erased: dict[str, ErasedDataset], dataset: Config, directory: Path, others: Sequence[Path]) -> list[Path]:
    stem = f"{dataset['name']}-erasers"
    if dataset.get("normalize", "none") != "none":
        stem = f"{dataset['name']}-{dataset['normalize']}-erasers"
    while directory / f"{stem}.png" in others:  # another split or size of the same dataset
        stem += "-more"
    paths = [directory / f"{stem}.{kind}" for kind in ("png", "pdf")]
    for path in paths:
        draw(erased, "train", _IMAGES, path)
    return paths
