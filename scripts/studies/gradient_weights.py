"""How far the gradient eraser's weights reduce the gaps, and how its edit compares with QLEACE's.

uv run python -m scripts.studies.gradient_weights --digits
uv run python -m scripts.studies.gradient_weights --digits --zscore --weights 120,12,1 120,120,1
uv run python -m scripts.studies.gradient_weights --dim 768 --samples 20000 --weights 120,12,1 240,24,1
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich import box
from rich.table import Table
from torch import Tensor

from erasure import ClassMoments, GradientEraser, QleaceEraser
from erasure.certificate import certify
from erasure.normalize import Scaling
from erasure.progress import console
from scripts.benchmarks.data import CIFAR_JPEG, labelled_images, side_of


def main(arguments: Sequence[str] | None = None) -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m scripts.studies.gradient_weights", description=__doc__, formatter_class=formatter
    )
    parser.add_argument("--digits", action="store_true", help="scikit-learn's digits instead of --dim")
    parser.add_argument("--zscore", action="store_true", help="every coordinate to mean 0 and variance 1 before")
    parser.add_argument("--dim", type=int, default=768, help="3 x side x side (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=20_000, help="default: %(default)s")
    parser.add_argument("--weights", nargs="+", default=["120,12,1"], help="of mean, covariance, edit")
    parser.add_argument("--iterations", type=int, default=500, help="of L-BFGS per class (default: %(default)s)")
    parser.add_argument("--images", type=Path, default=CIFAR_JPEG, help="real images, where present: %(default)s")
    options = parser.parse_args(arguments)
    try:
        weights = [tuple(float(part) for part in words.split(",")) for words in options.weights]
        if any(len(each) != 3 for each in weights):
            raise ValueError
    except ValueError:
        parser.error(f"--weights {' '.join(options.weights)}: three numbers with commas each, such as 120,12,1")
    if options.digits:
        x, z, what = digits()
    else:
        try:
            side = side_of(options.dim)
        except ValueError as error:
            parser.error(str(error))
        images, z, what = labelled_images(side, options.samples, 10, options.images)
        x = images / 255
    moments = ClassMoments.fit(x.double(), z)
    scaling = (
        Scaling.zscore(x, moments) if options.zscore else Scaling(torch.ones(x.shape[1:]), torch.zeros(x.shape[1:]))
    )
    x, scale, shift = scaling(x), scaling.scale.flatten(), scaling.shift.flatten()
    moments.rescale(scale, shift)
    before = certify(x, x, z, moments)
    title = f"{what}{', z-scored' if options.zscore else ''}; {options.iterations} iterations"
    table = Table(
        "eraser", "mean gap falls", "covariance gap falls", "edit", "seconds", title=title, box=box.SIMPLE_HEAD
    )
    eraser = QleaceEraser.from_moments(moments)
    table.add_row("QLEACE", "", "", f"{certify(x, eraser(x, z), z, moments).edit_size:.4f}", "")
    for each in weights:
        started = time.perf_counter()
        gradient = GradientEraser.from_moments(
            moments, weights=each, max_iterations=options.iterations, low=0.0, high=1.0
        )
        gradient.rescale_range(scale, shift)
        erased = gradient(x, z)
        seconds = time.perf_counter() - started
        after = certify(x, erased, z, moments)
        table.add_row(
            f"gradient {', '.join(f'{w:g}' for w in each)}",
            f"{1 - after.mean_gap / before.mean_gap:.2%}",
            f"{1 - after.covariance_gap / before.covariance_gap:.2%}",
            f"{after.edit_size:.4f}",
            f"{seconds:.0f}",
        )
    console(100).print(table)
    return 0


def digits() -> tuple[Tensor, Tensor, str]:
    """All of scikit-learn's digits, [n, 64] in 0..1."""
    from sklearn.datasets import load_digits

    data, target = load_digits(return_X_y=True)
    return torch.as_tensor(data / 16).float(), torch.as_tensor(target).long(), "digits, n = 1,797, d = 64"


if __name__ == "__main__":
    raise SystemExit(main())
