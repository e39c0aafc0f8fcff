"""Images under each eraser that a report's runs used: the paper's figures 1 and 2."""

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conf import Options
from conf.groups import choices, keys
from conf.schema import TARGETS, ConfigError
from erasure.pipeline import ErasedDataset
from harness.job import Job, erased
from harness.results.arrange import eraser_order
from harness.results.labels import Label
from harness.results.output import file_name
from scripts.report.figures import Note
from scripts.report.files import file_in
from scripts.show_erasers import draw, require_images

_IMAGES = 10  # columns of a grid


def draw_grids(
    configs: Sequence[Options],
    cache_dir: str,
    directory: Path,
    note: Note,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> list[Path]:
    """Draw a grid for each dataset, of training images; erased datasets come from the cache, or are computed into it.

    Args:
        configs: of finished runs.
        cache_dir: where erased datasets are kept.
        directory: of the report; grids go to `figures/<dataset>-erasers.png` and `.pdf`.
        note: takes a line on each dataset or eraser that cannot be had here.
        progress: called with how many of how many datasets are drawn.
    """
    by_dataset: dict[str, dict[str, Options]] = {}  # dataset section -> eraser -> the first configuration with both
    for config in configs:
        erasers = by_dataset.setdefault(json.dumps(config["dataset"], sort_keys=True), {})
        erasers.setdefault(config["eraser"]["name"], config)
    files: list[Path] = []
    for i, erasers in enumerate(by_dataset.values()):
        progress(i, len(by_dataset))
        images: dict[str, ErasedDataset] = {}
        for name in sorted(erasers, key=lambda name: eraser_order(Label((name,)))):
            try:
                images[name] = images_of(erasers[name], cache_dir)
            except (ValueError, OSError) as error:
                note(f"no images of {erasers[name]['dataset']['name']} under {name}: {error}")
        if images:
            files += _draw(images, next(iter(erasers.values()))["dataset"], directory, files)
    return files


def images_of(config: Options, cache_dir: str) -> ErasedDataset:
    """Return the dataset of a run, from a cache, or computed into it.

    Raises:
        ValueError: it cannot be had here, is none of images, or names a class that this project does not have:
            a report imports nothing that a run's directory names.
    """
    for part in ("dataset", "eraser"):
        if foreign := set(_targets(config[part])) - _ours():
            shown = ", ".join(sorted(foreign))
            raise ConfigError(f"{part}._target_={shown}: not one of this project's: draw it with scripts.show_erasers")
    try:
        found = erased(Job.from_config("", {**config, "cache_dir": cache_dir}))
    except (ValueError, OSError):
        raise
    except Exception as error:  # options of another version, or anybody's
        raise ConfigError(f"{type(error).__name__}: {error}") from error
    require_images(found)
    return found


def _targets(section: Any) -> Iterator[str]:
    """Yield the classes that a section and those within it name."""
    for key, value in section.items() if isinstance(section, Mapping) else ():
        yield from [str(value)] if key == "_target_" else _targets(value)


@functools.cache
def _ours() -> frozenset[str]:
    """Return the classes that this project's own choices name."""
    return frozenset(target for part in TARGETS for choice in choices(part) for target in _targets(keys(part, choice)))


def _draw(images: dict[str, ErasedDataset], dataset: Options, directory: Path, others: Sequence[Path]) -> list[Path]:
    normalize = dataset.get("normalize", "none")
    stem = file_name("-".join([dataset["name"], *([] if normalize == "none" else [str(normalize)]), "erasers"]))
    path = file_in(directory, "figures", f"{stem}.png")
    while path in others:  # another split or size of the same dataset
        path = path.with_stem(f"{path.stem}-more")
    draw(images, "train", _IMAGES, path)
    return [path, path.with_suffix(".pdf")]
