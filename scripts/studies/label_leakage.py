"""Label leakage: how much of its label an eraser that sees labels writes into an image.

    python -m scripts.studies.label_leakage dataset=image_folder dataset.root=CIFAR dataset.normalize=zscore

Takes the overrides of python -m mdl. Two probes, both fitted on the erased training images:

Subspaces: the directions in which the erased images of each class vary. A held-out image is said to be of the class
outside whose subspace it has the smallest part. An exact QLEACE leaves all classes the same subspace; a truncated one
(eraser=qleace_truncated) leaves each its own.

Maps: an eraser that sees labels moves each class by an affine map of its own; the map back is found by least squares
from training images before and after. Held-out images are then moved back as ones of each class. Where some value is no
possible pixel then, that class is ruled out: images of a class fill a parallelepiped of its own (Quirke & Belrose 2025,
section 2.3). And one class's values are nearest to whole grey levels.
"""

import argparse
import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from conf.errors import exit_code
from conf.target import Target
from erasure.eraser import Eraser
from erasure.images import raw_images
from erasure.linalg import CovarianceFactor
from erasure.pipeline import ErasedDataset
from erasure.source import LabelledImages
from erasure.store.cache import Cache
from harness.job import Job, erased
from harness.results.table import Table
from scripts.options import parser
from scripts.show_erasers import erased_by, job_under, require_images

_VARIES = 1e-9  # of the largest variance of a class; rounding to float32 leaves 1e-14
_OUTSIDE = 0.05  # grey levels beyond the range that are rounding: stored images are float32
_NEAR = 1e-3  # from whole grey levels, root mean square, that is rounding


def subspaces(images: Tensor, labels: Tensor) -> list[Tensor]:
    """Return for each class orthonormal directions [d, r_j] in which its images [n, d] vary, float64."""
    bases = []
    for label in labels.unique().tolist():
        values, vectors = torch.linalg.eigh(images[labels == label].double().T.cov())
        bases.append(vectors[:, values > _VARIES * values[-1]])
    return bases


def by_subspace(images: Tensor, mean: Tensor, bases: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the class [n] outside whose subspace each image has the smallest part, and those parts [n, k].

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
    """Return the table of the subspaces' probe, a line per split."""
    train = after.splits["train"]
    x = train.images.flatten(1)
    bases, mean = subspaces(x, train.labels), x.double().mean(0)
    ranks = [basis.shape[1] for basis in bases]
    rows = []
    for name, part in after.splits.items():
        said, outside = by_subspace(part.images.flatten(1), mean, bases)
        own = outside.gather(1, part.labels[:, None]).squeeze(1)
        others = outside.scatter(1, part.labels[:, None], torch.inf).amin(1)
        right = (said == part.labels).double().mean()
        rows.append([name, f"{len(part):,}", f"{right:.1%}", f"{own.median():.2g}", f"{others.median():.2g}"])
    caption = (
        f"The images of each class vary in {min(ranks)} to {max(ranks)} of {x.shape[1]} directions. Outside: the "
        "part of an image outside the subspace of its own class, and of the nearest other class, medians."
    )
    headings = ("split", "images", "right by subspace", "outside its own", "outside the nearest other")
    return Table("subspaces", caption, headings, rows)


def affine_maps(before: Tensor, after: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Fit for each class the affine map (A [d, d], b [d]) that takes images `before` [n, ...] to `after`, float64.

    Raises:
        ValueError: a class has too few images to know it.
    """
    found = []
    before, after = before.double().flatten(1), after.double().flatten(1)
    for label in labels.unique().tolist():
        x, y = before[labels == label], after[labels == label]
        if len(x) <= x.shape[1]:
            raise ValueError(
                f"class {label} has {len(x)} training images of {x.shape[1]} values each, and what becomes of it takes "
                "more images than values to know: make them smaller with dataset.size"
            )
        x_mean, y_mean = x.mean(0), y.mean(0)
        x, y = x - x_mean, y - y_mean
        factor = CovarianceFactor(x.T @ x / len(x), x_mean)  # pixels may be constant
        slope = factor.solve_transposed(factor.solve(x.T @ y / len(x)))
        found.append((slope, y_mean - x_mean @ slope))
    return found


def require_maps_of_classes(job: Job) -> None:
    """Refuse what moves no class by a map of its own.

    Raises:
        ValueError: the job's eraser is such a one.
    """
    kind = Target(job.config.eraser).resolve(Eraser)
    if kind.transductive or not kind.uses_labels:
        name = job.config.eraser["name"]
        raise ValueError(f"eraser={name}: has no map for each class; choose qleace or oracle_leace")


def read(images: Tensor, back: Sequence[tuple[Tensor, Tensor]], levels: int) -> tuple[Tensor, Tensor]:
    """Return which classes [n, k] are possible for images [n, d], and which one [n] has the wholest grey levels.

    `back` leads to pixels in 0..1, in steps of 1 / levels.
    """
    possible, distance = [], []
    for slope, shift in back:
        grey = (images @ slope + shift) * levels
        possible.append((torch.maximum(-grey, grey - levels) <= _OUTSIDE).all(1))
        distance.append((grey - grey.round()).square().mean(1).sqrt().clamp(min=_NEAR))
    return torch.stack(possible, 1), torch.stack(distance, 1).argmin(1)


def row(name: str, part: LabelledImages, back: Sequence[tuple[Tensor, Tensor]], levels: int) -> list[str]:
    """Return a split's line of the table."""
    possible, nearest = read(part.images.double().flatten(1), back, levels)
    own, left = possible.gather(1, part.labels[:, None]).double(), possible.sum(1).clamp(min=1).double()
    right = (nearest == part.labels).double()
    shares = f"{own.mean():.1%}", f"{left.mean():.2f}", f"{left.log2().mean():.2f}", f"{right.mean():.1%}"
    return [name, f"{len(part):,}", *shares]


def show(chosen: argparse.Namespace) -> int:
    job = job_under(chosen.eraser, chosen.overrides)
    require_maps_of_classes(job)
    before, after = erased_by("control", chosen.overrides), erased(job)
    require_images(before)
    subspace_table(after).show()
    levels = raw_images(job.source, Cache(job.config.cache_dir)).max_value
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
    Table("maps", caption, headings, rows).show()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    own = parser("studies.label_leakage", __doc__)
    own.add_argument("overrides", nargs="*", help="as of python -m mdl")
    own.add_argument("--eraser", default="qleace", help="one that sees labels")
    chosen = own.parse_args(arguments)
    return exit_code(functools.partial(show, chosen), "mdl", chosen.overrides)


if __name__ == "__main__":
    raise SystemExit(main())
