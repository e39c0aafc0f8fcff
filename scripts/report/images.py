"""Images in a report: under each eraser (the paper's figures 1 and 2), and with the dearest and cheapest labels."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch

from conf import Options
from conf.schema import ConfigError
from erasure.pipeline import ErasedDataset
from harness.example_bits import CodedBits
from harness.job import Job, erased
from harness.results.arrange import eraser_order
from harness.results.entries import Entry
from harness.results.output import file_name
from harness.results.read import Note
from harness.results.run_labels import Label
from scripts.report.write import file_in
from scripts.show_erasers import Shown, draw, draw_rows, require_images

_IMAGES = 10  # in a row


def draw_grids(configs: Sequence[Options], cache_dir: str, out: Path, note: Note) -> dict[str, Path]:
    """Draw training images of each dataset under each eraser, to `figures/<dataset>-erasers.png` and `.pdf`.

    Args:
        configs: of finished runs.
        cache_dir: where erased datasets are kept, or computed into.
        out: the report's folder.
        note: takes a line on each dataset or eraser that cannot be had here.

    Returns:
        The figures by caption.
    """
    by_dataset: dict[str, dict[str, Options]] = {}  # dataset section -> eraser -> the first configuration with both
    for config in configs:
        erasers = by_dataset.setdefault(json.dumps(config["dataset"], sort_keys=True), {})
        erasers.setdefault(config["eraser"]["name"], config)
    figures: dict[str, Path] = {}
    for erasers in by_dataset.values():
        images: dict[str, ErasedDataset] = {}
        for name in sorted(erasers, key=lambda name: eraser_order(Label((name,)))):
            try:
                images[name] = images_of(erasers[name], cache_dir)
            except (ValueError, OSError) as error:
                note(f"no images of {erasers[name]['dataset']['name']} under {name}: {error}")
        if images:
            dataset = next(iter(erasers.values()))["dataset"]
            normalize = str(dataset.get("normalize", "none"))
            caption = " ".join([dataset["name"], *([] if normalize == "none" else [normalize])])
            while caption in figures:  # another split or size of the same dataset
                caption += " more"
            figures[caption] = file_in(out, "figures", f"{file_name(f'{caption} erasers')}.png")
            draw(images, "train", _IMAGES, figures[caption])
    return figures


def draw_label_costs(name: str, costs: Sequence[Entry], cache_dir: str, out: Path, note: Note) -> dict[str, Path]:
    """Draw the images whose labels cost most and least, of every row and eraser, to `figures/<name>-examples.png`."""
    try:
        dataset = images_of(costs[0]["runs"][0].config, cache_dir)
        rows = {
            f"{one['model'].display}, {one['eraser'].display}\n{end} (bits)": _extremes(dataset, one["coded"], sign)
            for one in costs
            for end, sign in (("dearest", 1), ("cheapest", -1))
        }
    except (ValueError, OSError, IndexError) as error:  # bits of other examples than the dataset's
        note(f"no images beside what labels cost in {name}: {error}")
        return {}
    path = file_in(out, "figures", f"{file_name(f'{name}-examples')}.png")
    draw_rows(rows, path)
    return {"dearest and cheapest labels": path}


def _extremes(dataset: ErasedDataset, coded: CodedBits, sign: int) -> Shown:
    """Return the images whose labels cost most (sign 1) or least (sign -1), and how much."""
    cost = coded.by_network.nanmean(0)
    chosen = (sign * cost).nan_to_num(-torch.inf).argsort(descending=True)[:_IMAGES]
    names = [dataset.class_names[label] for label in coded.labels[chosen].tolist()]
    titles = [f"{name}: {bits:.1f}" for name, bits in zip(names, cost[chosen].tolist(), strict=True)]
    return Shown(dataset.pixels(dataset.splits["train"].images[chosen].float()), titles)


def images_of(config: Options, cache_dir: str) -> ErasedDataset:
    """Return the dataset of a run, from a cache, or computed into it.

    Raises:
        ValueError: it cannot be had here, is none of images, or names a class that no YAML file does: a report imports
            nothing that a run's directory names.
    """
    try:
        dataset = erased(Job.stored({**config, "cache_dir": cache_dir}))
    except (ValueError, OSError):
        raise
    except Exception as error:  # options of another version, or anybody's
        raise ConfigError(f"{type(error).__name__}: {error}") from error
    require_images(dataset)
    return dataset
