"""Whether a network trained on erased images reads the image, or the label that the eraser wrote into it.

    python -m train -m eraser=control,qleace OVERRIDES
    python -m scripts.studies.use_of_leaked_labels OVERRIDES

Takes the overrides of finished runs of python -m train. An eraser that sees labels moves each class by its own affine
map, and so writes the label into the image (see label_leakage). This study applies the maps of other classes to test
images. A network trained on erased images predicts the image's class or the map's. A network trained on the original
images shows how far the maps change the image.
"""

import argparse
import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from conf.command_process import exit_code
from conf.compose import composed
from erasure.dataset import LabelledImages
from erasure.progress import Display
from erasure.store.checked_files import load_tensors
from harness.experiment import Experiment
from harness.results.run_labels import display_name
from harness.results.table import Table
from harness.statistics import Spread
from scripts.command_line import argument_parser
from scripts.erased_dataset_from_overrides import erased_by, job_under
from scripts.studies.label_leakage import affine_maps, require_maps_of_classes
from train.device_images import as_trained_on
from train.ensemble import Weights
from train.prepared_training import WEIGHTS, PreparedTraining, prepare
from train.settings import TrainConfig

_CAPTION = (
    "Percent. Right: of test images under the map of their own class. Then under another's: how often networks say the "
    "image's class, and the map's. By chance: any other class, if maps made no difference. Mean ± standard deviation "
    "over seeds."
)

Maps = Sequence[tuple[Tensor, Tensor]]  # of classes: x -> x A + b


def answer_rates(predicted: Tensor, labels: Tensor) -> dict[str, float]:
    """Return how often one network predicts each class on test images, by heading of the table.

    Args:
        predicted: class of each image under each class's map, [k, n].
        labels: of the images, [n].
    """
    k = len(predicted)
    maps = torch.arange(k)[:, None].expand_as(predicted)
    is_own = maps == labels

    def rate(expected: Tensor, mask: Tensor) -> float:
        return float((predicted == expected)[mask].double().mean())

    right = rate(maps, is_own)
    image, of_map = rate(labels.expand_as(predicted), ~is_own), rate(maps, ~is_own)
    return {"right": right, "image's class": image, "map's class": of_map, "by chance": (1 - right) / (k - 1)}


def predictions_under_maps(
    title: str, prepared: PreparedTraining, weights: Weights, images: Tensor, maps: Maps
) -> Tensor:
    """Return the predictions of S networks for images [n, C, H, W] under each class's map: [S, k, n].

    `title` is that of the progress bar.
    """
    flat, predicted = images.double().flatten(1), []
    with Display(title) as display:
        for done, (slope, shift) in enumerate(maps):
            display.update(done / len(maps), f"map of class {done}")
            predicted.append(answers(prepared, weights, (flat @ slope + shift).view_as(images)))
    return torch.stack(predicted, 1)


@torch.no_grad()
def answers(prepared: PreparedTraining, weights: Weights, x: Tensor) -> Tensor:
    """Return the predicted class of images [n, C, H, W] by each of S networks: [S, n]."""
    unused = torch.zeros(len(x), dtype=torch.int64)  # labels
    images, predicted = as_trained_on(prepared.dataset, LabelledImages(x, unused), prepared.experiment.device), []
    for member in range(len(prepared.seeds)):
        alone = {name: weight[[member]].to(prepared.experiment.device) for name, weight in weights.items()}
        logits = [part for part, _ in prepared.ensemble.outputs(alone, images)]
        predicted.append(torch.cat(logits, 1)[0].argmax(-1).cpu())
    return torch.stack(predicted)


def trained(overrides: Sequence[str]) -> tuple[PreparedTraining, Weights]:
    """Return the networks of a finished run.

    Raises:
        ValueError: the run has no weights.
    """
    experiment = Experiment.from_config("train", composed("train", overrides, TrainConfig).with_precision())
    path = experiment.run.directory / WEIGHTS
    if not path.exists():
        raise ValueError(f"there is no {path}: train the network first, python -m train {' '.join(overrides)}")
    return prepare(experiment), load_tensors(path)[0]


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
        rates = [
            answer_rates(predicted, test.labels)
            for predicted in predictions_under_maps(name, prepared, weights, test.images, maps)
        ]
        shares = {key: f"{Spread.of([100 * one[key] for one in rates]):.1f}" for key in rates[0]}
        rows.append({"trained on": display_name(name)} | shares)
    Table("use_of_leaked_labels", [_CAPTION], [*rows[0]], [[*row.values()] for row in rows]).show()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("studies.use_of_leaked_labels", __doc__)
    parser.add_argument("overrides", nargs="*", help="as of python -m train, without eraser")
    parser.add_argument("--eraser", default="qleace", help="whose maps: one that sees labels")
    parser.add_argument("--trained-on", nargs="+", help="erasers of the networks; control and --eraser by default")
    chosen = parser.parse_args(arguments)
    return exit_code(functools.partial(show, chosen), "train", chosen.overrides)


if __name__ == "__main__":
    raise SystemExit(main())
