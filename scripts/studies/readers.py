"""Whether a trained network sees the image, or the map by which an eraser moved it.

    python -m train -m eraser=control,qleace OVERRIDES
    python -m scripts.studies.readers OVERRIDES

Takes the overrides of finished runs of python -m train. An eraser that sees labels moves each class by an affine map
of its own, and so writes the label into the image (`scripts.studies.written`). Here test images go through the map of
every other class in turn: does a network that was trained on images which went through their own say what is on the
image, or whose map it was? One that was trained on images as they were tells what the maps do to what is on them.
"""

import argparse
import functools
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import torch
from torch import Tensor

from conf.compose import composed
from conf.errors import exit_code
from erasure.source import LabelledImages
from erasure.store.storage import load_tensors
from harness.compare import Spread
from harness.job import Job
from harness.labels import spelled
from harness.table import Table
from scripts.options import parser
from scripts.show_erasers import erased_by
from scripts.studies.written import affine_maps, require_maps_of_classes
from train.__main__ import VERB
from train.bench import Bench, load, training_job
from train.data import DeviceImages
from train.ensemble import Weights
from train.whole import WEIGHTS

_HEADINGS = ("trained on", "right, %", "the image's class, %", "the map's class, %", "if maps said nothing, %")
_CAPTION = (
    "Right: test images under the map of their own class. Then under the maps of the other classes in turn: how often "
    "networks say the image's class and the map's; and how often they would say the map's if maps made no difference. "
    "Mean ± standard deviation over seeds."
)


@dataclass(frozen=True)
class Heard:
    """What one network says of test images, as shares.

    Attributes:
        right: of images that went through the map of their own class.
        image: of those that went through another's, that they are what they show.
        whose: that they are what the map is of.
        chance: what `whose` would be if maps made no difference: the wrong answers to images under their own map, over
            the other classes.
    """

    right: float
    image: float
    whose: float
    chance: float

    @classmethod
    def of(cls, said: Tensor, labels: Tensor) -> "Heard":
        """From the likeliest class [k, n] of each image under the map of each class, and the images' classes [n]."""
        maps = torch.arange(len(said))[:, None].expand_as(said)
        own = maps == labels
        right, wrong = (float((said == labels)[here].double().mean()) for here in (own, ~own))
        return cls(right, wrong, float((said == maps)[~own].double().mean()), (1 - right) / (len(said) - 1))


def under_every_map(images: Tensor, maps: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """Images [n, C, H, W] as each of the k classes' maps moves them."""
    flat = images.double().flatten(1)
    return [(flat @ slope + shift).view_as(images).to(images.dtype) for slope, shift in maps]


@torch.no_grad()
def answers(bench: Bench, weights: Weights, images: Tensor) -> Tensor:
    """The likeliest class of each image by each of the S networks of `weights` [S, ...]: [S, n]."""
    dataset, device = bench.dataset, bench.job.device
    part = LabelledImages(images, torch.zeros(len(images), dtype=torch.int64))
    shown = DeviceImages(part, dataset.channel_mean, dataset.channel_std, padding=0, flip=False, device=device).images
    said = []
    for member in range(len(bench.seeds)):
        alone = {name: weight[[member]].to(device) for name, weight in weights.items()}
        parts = shown.split(bench.settings.eval_batch_size)
        said.append(torch.cat([bench.ensemble.logits(alone, x)[0].argmax(-1) for x in parts]))
    return torch.stack(said).cpu()


def trained(overrides: Sequence[str]) -> tuple[Bench, Weights]:
    """The networks of a finished run.

    Raises:
        ValueError: there is none.
    """
    job = training_job(VERB.name, composed(VERB.name, overrides, VERB.sections))
    path = job.run().directory / WEIGHTS
    if not path.exists():
        raise ValueError(f"there is no {path}: train the network first, python -m train {' '.join(overrides)}")
    return load(job), load_tensors(path)[0]


def show(chosen: argparse.Namespace) -> int:
    under = [*chosen.overrides, f"eraser={chosen.eraser}"]
    require_maps_of_classes(Job.from_config(VERB.name, composed(VERB.name, under, VERB.sections)))
    networks = {
        name: trained([*chosen.overrides, f"eraser={name}"]) for name in chosen.trained_on or ("control", chosen.eraser)
    }
    before, after = (erased_by(name, chosen.overrides).splits for name in ("control", chosen.eraser))
    maps = affine_maps(before["train"].images, after["train"].images, before["train"].labels)
    moved, labels = under_every_map(before["test"].images, maps), before["test"].labels
    rows = []
    for name, (bench, weights) in networks.items():
        said = torch.stack([answers(bench, weights, images) for images in moved], 1)
        shares = zip(*(astuple(Heard.of(own, labels)) for own in said), strict=True)
        rows.append([spelled(name), *(f"{Spread.of([100 * share for share in own]):.1f}" for own in shares)])
    Table("readers", _CAPTION, _HEADINGS, rows).show()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    own = parser("studies.readers", __doc__)
    own.add_argument("overrides", nargs="*", help="as of python -m train, without eraser")
    own.add_argument("--eraser", default="qleace", help="whose maps: one that sees labels")
    own.add_argument("--trained-on", nargs="+", help="erasers of the networks; control and --eraser by default")
    chosen = own.parse_args(arguments)
    return exit_code(functools.partial(show, chosen), VERB.name, chosen.overrides)


if __name__ == "__main__":
    raise SystemExit(main())
