"""Label leakage: how much of the label an eraser that sees labels writes into an image.

    python -m scripts.studies.label_leakage dataset=image_folder dataset.root=CIFAR dataset.normalize=zscore

Takes the overrides of python -m mdl. Two probes, both fitted on the erased training images:

Subspaces: the directions in which the erased images of each class vary. A held-out image is assigned to the class whose
subspace leaves the smallest residual. After exact QLEACE all classes have the same subspace; after truncated QLEACE
(--eraser qleace_truncated) each class has another.

Maps: an eraser that sees labels moves each class by its own affine map; the inverse map is fitted by least squares to
training images before and after. Each held-out image is moved back by the map of every class. A class is ruled out if
this gives a value that no pixel has: images of a class fill a parallelepiped (Quirke & Belrose 2025, section 2.3). The
predicted class is the one whose values are nearest to whole grey levels.
"""

import argparse
import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from conf.command_process import exit_code
from conf.target_class import Target
from erasure.covariance_factor import CovarianceFactor
from erasure.dataset import LabelledImages
from erasure.eraser import Eraser
from erasure.image_cache import raw_images
from erasure.pipeline import ErasedDataset
from erasure.store.cache import Cache
from harness.experiment import Experiment, erased
from harness.results.table import Table
from scripts.command_line import argument_parser
from scripts.erased_dataset_from_overrides import job_under, require_images

_VARIES = 1e-9  # smallest variance, relative to the largest; rounding to float32 leaves 1e-14
_OUTSIDE = 0.05  # grey levels beyond the range by rounding: stored images are float32
_NEAR = 1e-3  # RMS distance from whole grey levels by rounding


def subspaces(images: Tensor, labels: Tensor) -> list[Tensor]:
    """Return for each class orthonormal directions [d, r_j] in which its images [n, d] vary, float64."""
    bases = []
    for label in labels.unique().tolist():
        values, vectors = torch.linalg.eigh(images[labels == label].double().T.cov())
        bases.append(vectors[:, values > _VARIES * values[-1]])
    return bases


def by_subspace(images: Tensor, mean: Tensor, bases: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the class [n] whose subspace leaves the smallest relative residual, and all residuals [n, k].

    Args:
        images: [n, d].
        mean: of all images, [d]; every subspace goes through it.
        bases: of `subspaces`.
    """
    centred = images.double() - mean
    size = centred.norm(dim=1)
    outside = torch.stack([(centred - centred @ basis @ basis.T).norm(dim=1) / size for basis in bases], 1)
    return outside.argmin(1), outside


def subspace_table(after: ErasedDataset) -> Table:
    """Tabulate the subspace probe, a row per split."""
    train = after.splits["train"]
    x = train.images.flatten(1)
    bases, mean = subspaces(x, train.labels), x.double().mean(0)
    ranks = [basis.shape[1] for basis in bases]
    rows = []
    for name, part in after.splits.items():
        predicted, outside = by_subspace(part.images.flatten(1), mean, bases)
        outside_own = outside.gather(1, part.labels[:, None]).squeeze(1)
        others = outside.scatter(1, part.labels[:, None], torch.inf).amin(1)
        right = (predicted == part.labels).double().mean()
        rows.append([name, f"{len(part):,}", f"{right:.1%}", f"{outside_own.median():.2g}", f"{others.median():.2g}"])
    caption = (
        f"The images of each class vary in {min(ranks)} to {max(ranks)} of {x.shape[1]} directions. Outside: the "
        "part of an image outside the subspace of its own class, and of the nearest other class, medians."
    )
    headings = ("split", "images", "right by subspace", "outside its own", "outside the nearest other")
    return Table("subspaces", [caption], headings, rows)


def affine_maps(before: Tensor, after: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Fit for each class the affine map (A [d, d], b [d]) that takes images `before` [n, ...] to `after`, float64.

    Raises:
        ValueError: a class has too few images.
    """
    maps = []
    before, after = before.double().flatten(1), after.double().flatten(1)
    for label in labels.unique().tolist():
        x, y = before[labels == label], after[labels == label]
        if len(x) <= x.shape[1]:
            raise ValueError(
                f"class {label} has {len(x)} training images of {x.shape[1]} values each; fitting its map needs more "
                "images than values: make them smaller with dataset.size"
            )
        x_mean, y_mean = x.mean(0), y.mean(0)
        x, y = x - x_mean, y - y_mean
        factor = CovarianceFactor(x.T @ x / len(x), x_mean)  # pixels may be constant
        slope = factor.solve_transposed(factor.solve(x.T @ y / len(x)))
        maps.append((slope, y_mean - x_mean @ slope))
    return maps


def require_maps_of_classes(experiment: Experiment) -> None:
    """Require an eraser with a map per class.

    Raises:
        ValueError: the experiment's eraser has none.
    """
    eraser = Target(experiment.config.eraser, Eraser).resolve()
    if eraser.transductive or not eraser.uses_labels:
        name = experiment.config.eraser["name"]
        raise ValueError(f"eraser={name}: has no map for each class; choose qleace or oracle_leace")


def decode(images: Tensor, back: Sequence[tuple[Tensor, Tensor]], levels: int) -> tuple[Tensor, Tensor]:
    """Return the mask [n, k] of possible classes of images [n, d], and the class [n] nearest to whole grey levels.

    `back` maps to pixels in 0..1, in steps of 1 / levels.
    """
    possible, distance = [], []
    for slope, shift in back:
        grey = (images @ slope + shift) * levels
        possible.append((torch.maximum(-grey, grey - levels) <= _OUTSIDE).all(1))
        distance.append((grey - grey.round()).square().mean(1).sqrt().clamp(min=_NEAR))
    return torch.stack(possible, 1), torch.stack(distance, 1).argmin(1)


def row(name: str, part: LabelledImages, back: Sequence[tuple[Tensor, Tensor]], levels: int) -> list[str]:
    """Return a split's row of the table."""
    possible, nearest = decode(part.images.double().flatten(1), back, levels)
    own_possible, left = possible.gather(1, part.labels[:, None]).double(), possible.sum(1).clamp(min=1).double()
    right = (nearest == part.labels).double()
    shares = f"{own_possible.mean():.1%}", f"{left.mean():.2f}", f"{left.log2().mean():.2f}", f"{right.mean():.1%}"
    return [name, f"{len(part):,}", *shares]


def show(chosen: argparse.Namespace) -> int:
    experiment = job_under(chosen.eraser, chosen.overrides)
    require_maps_of_classes(experiment)
    before, after = erased(experiment.control()), erased(experiment)
    require_images(before)
    subspace_table(after).show()
    levels = raw_images(experiment.source, Cache(experiment.config.cache_dir)).max_value
    train = after.splits["train"]
    back = affine_maps(train.images, before.pixels(before.splits["train"].images.double()), train.labels)
    rows = [row(name, part, back, levels) for name, part in after.splits.items() if part is not train]
    bits = f"of {math.log2(len(back)):.2f} bits of a label"
    headings = (
        "split",
        "images",
        "own class in range",
        "classes in range",
        f"left {bits}",
        "right by whole grey levels",
    )
    caption = "Left: what a uniform code over the classes in range says, mean of the images."
    Table("maps", [caption], headings, rows).show()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("studies.label_leakage", __doc__)
    parser.add_argument("overrides", nargs="*", help="as of python -m mdl")
    parser.add_argument("--eraser", default="qleace", help="one that sees labels")
    chosen = parser.parse_args(arguments)
    return exit_code(functools.partial(show, chosen), "mdl", chosen.overrides)


if __name__ == "__main__":
    raise SystemExit(main())
