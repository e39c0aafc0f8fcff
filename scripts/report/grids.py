"""The same images under each eraser that a report's runs used: the paper's figures 1 and 2."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from conf import Options
from conf.schema import ConfigError
from erasure.pipeline import ErasedDataset
from harness.job import Job, erased
from scripts.report.figures import Note
from scripts.report.groups import eraser_order
from scripts.show_erasers import draw, require_images

_IMAGES = 10  # columns of a grid


def draw_grids(
    configs: Sequence[Options],
    cache_dir: str,
    directory: Path,
    note: Note,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> list[Path]:
    """A grid for each dataset, of training images; erased datasets come from the cache, or are computed into it.

    Args:
        configs: of finished runs.
        cache_dir: where erased datasets are kept.
        directory: of the report; grids go to `figures/<dataset>-erasers.png` and `.pdf`.
        note: takes a line on each dataset or eraser that cannot be had here.
        progress: called with how many of how many datasets are drawn.
    """
    by_dataset: dict[str, dict[str, Options]] = {}  # dataset section -> eraser -> the first configuration with both
    for config in configs:
        own = {key: value for key, value in config["dataset"].items() if key != "gradient_weights"}  # of earlier runs
        erasers = by_dataset.setdefault(json.dumps(own, sort_keys=True), {})
        erasers.setdefault(config["eraser"]["name"], config)
    files: list[Path] = []
    for i, erasers in enumerate(by_dataset.values()):
        progress(i, len(by_dataset))
        images: dict[str, ErasedDataset] = {}
        for name in sorted(erasers, key=eraser_order):
            try:
                images[name] = images_of(erasers[name], cache_dir)
            except (ValueError, KeyError, OSError) as error:
                note(f"no images of {erasers[name]['dataset']['name']} under {name}: {error}")
        if images:
            files += _draw(images, next(iter(erasers.values()))["dataset"], directory / "figures", files)
    return files


def images_of(config: Options, cache_dir: str) -> ErasedDataset:
    """The dataset of a run, from a cache, or computed into it.

    Raises:
        ValueError: it cannot be had here, or is none of images.
    """
    try:
        found = erased(Job.from_config("", {**config, "cache_dir": cache_dir}))
    except TypeError as error:  # options of another version
        raise ConfigError(str(error)) from error
    require_images(found)
    return found


def _draw(images: dict[str, ErasedDataset], dataset: Options, directory: Path, others: Sequence[Path]) -> list[Path]:
    stem = f"{dataset['name']}-erasers"
    if dataset.get("normalize", "none") != "none":
        stem = f"{dataset['name']}-{dataset['normalize']}-erasers"
    while directory / f"{stem}.png" in others:  # another split or size of the same dataset
        stem += "-more"
    draw(images, "train", _IMAGES, directory / f"{stem}.png")
    return [directory / f"{stem}.{kind}" for kind in ("png", "pdf")]
