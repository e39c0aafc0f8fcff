"""Whether a trained network sees the image, or the map by which an eraser moved it.

    python -m train -m eraser=control,qleace OVERRIDES
    python -m scripts.studies.readers OVERRIDES

Takes the overrides of finished runs of python -m train. An eraser that sees labels moves each class by an affine map
of its own, from the class's mean to one of all, and so writes the label into the image (see label_leakage).
Here test images go through the maps of other classes, and through ones that take the mean of one class and the slope
of another: does a network that was trained on images which went through their own say what is on the image, or whose
map it was? One that was trained on images as they were tells what the maps do to what is on them.
"""

import argparse
import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from conf.compose import composed
from conf.errors import exit_code
from erasure.progress import Display
from erasure.source import LabelledImages
from erasure.store.storage import load_tensors
from harness.results.labels import display_name
from harness.results.statistics import Spread
from harness.results.table import Table
from scripts.options import parser
from scripts.show_erasers import erased_by, job_under
from scripts.studies.label_leakage import affine_maps, require_maps_of_classes
from train.data import as_trained_on
from train.ensemble import Weights
from train.prepare import PreparedTraining, load, training_job
from train.settings import TrainConfig
from train.whole import WEIGHTS

_CAPTION = (
    "Percent. Right: of test images under the map of their own class. Map: under another's, how often networks say the "
    "image's class, and the map's. Parts: under the mean of a second class and the slope of a third, how often they "
    "say the image's class, the mean's, the slope's. By chance: any other class, if maps made no difference. Mean ± "
    "standard deviation over seeds."
)

Maps = Sequence[tuple[Tensor, Tensor]]  # of classes: x -> x A + b


def heard(said: Tensor, labels: Tensor) -> dict[str, float]:
    """Return one network's answers on test images, as shares by heading of the table.

    From the likeliest class [k, k, n] of each image under each class's mean and slope, and its own class [n].
    """
    k = len(said)
    means, slopes = torch.arange(k)[:, None, None].expand_as(said), torch.arange(k)[:, None].expand_as(said)
    own = means == labels, slopes == labels, means == slopes

    def share(which: Tensor, here: Tensor) -> float:
        return float((said == which)[here].double().mean())

    another, three = own[2] & ~own[0], ~(own[0] | own[1] | own[2])
    right = share(labels, own[0] & own[1])
    return {
        "right": right,
        "map: image": share(labels, another),
        "map: map": share(slopes, another),
        "parts: image": share(labels, three),
        "parts: mean": share(means, three),
        "parts: slope": share(slopes, three),
        "by chance": (1 - right) / (k - 1),
    }


def hear(
    title: str, prepared: PreparedTraining, weights: Weights, before: LabelledImages, images: Tensor, maps: Maps
) -> Tensor:
    """Return the answers of S networks for images [n, C, H, W] under each class's mean and slope: [S, k, k, n].

    `maps` are those of `before`'s classes, whose means are taken from it; `title` is shown beside the time left.
    """
    training, flat = before.images.double().flatten(1), images.double().flatten(1)
    means = torch.stack([training[before.labels == label].mean(0) for label in range(len(maps))])
    said = torch.zeros(len(prepared.seeds), len(maps), len(maps), len(images), dtype=torch.int64)
    with Display(title) as display:
        for own, (slope, shift) in enumerate(maps):
            moved = flat @ slope + shift
            for other, by in enumerate((means[own] - means) @ slope):
                said[:, other, own] = answers(prepared, weights, (moved + by).view_as(images))
                done = (own * len(maps) + other + 1) / len(maps) ** 2
                display.update(done, f"slope of class {own}, mean of class {other}")
    return said


@torch.no_grad()
def answers(prepared: PreparedTraining, weights: Weights, x: Tensor) -> Tensor:
    """Return the likeliest class of images [n, C, H, W] by each of S networks: [S, n]."""
    nothing = torch.zeros(len(x), dtype=torch.int64)  # in the place of labels
    images, said = as_trained_on(prepared.dataset, LabelledImages(x, nothing), prepared.job.device), []
    for member in range(len(prepared.seeds)):
        alone = {name: weight[[member]].to(prepared.job.device) for name, weight in weights.items()}
        logits = [part for part, _ in prepared.ensemble.outputs(alone, images)]
        said.append(torch.cat(logits, 1)[0].argmax(-1).cpu())
    return torch.stack(said)


def trained(overrides: Sequence[str]) -> tuple[PreparedTraining, Weights]:
    """Return the networks of a finished run.

    Raises:
        ValueError: there is none.
    """
    job = training_job("train", composed("train", overrides, TrainConfig))
    path = job.run_directory().directory / WEIGHTS
    if not path.exists():
        raise ValueError(f"there is no {path}: train the network first, python -m train {' '.join(overrides)}")
    return load(job), load_tensors(path)[0]


def show(chosen: argparse.Namespace) -> int:
    require_maps_of_classes(job_under(chosen.eraser, chosen.overrides))
    networks = {
        name: trained([*chosen.overrides, f"eraser={name}"]) for name in chosen.trained_on or ("control", chosen.eraser)
    }
    before, after = (erased_by(name, chosen.overrides).splits for name in ("control", chosen.eraser))
    train, test = before["train"], before["test"]
    maps = affine_maps(train.images, after["train"].images, train.labels)
    rows = []
    for name, (prepared, weights) in networks.items():
        found = [heard(said, test.labels) for said in hear(name, prepared, weights, train, test.images, maps)]
        shares = {key: f"{Spread.of([100 * one[key] for one in found]):.1f}" for key in found[0]}
        rows.append({"trained on": display_name(name)} | shares)
    Table("readers", _CAPTION, [*rows[0]], [[*row.values()] for row in rows]).show()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    own = parser("studies.readers", __doc__)
    own.add_argument("overrides", nargs="*", help="as of python -m train, without eraser")
    own.add_argument("--eraser", default="qleace", help="whose maps: one that sees labels")
    own.add_argument("--trained-on", nargs="+", help="erasers of the networks; control and --eraser by default")
    chosen = own.parse_args(arguments)
    return exit_code(functools.partial(show, chosen), "train", chosen.overrides)


if __name__ == "__main__":
    raise SystemExit(main())
