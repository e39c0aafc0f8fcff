"""The theorem on data: logistic regression on all Hermite polynomials of leading directions, after each eraser.

uv run python -m scripts.studies.polynomials
uv run python -m scripts.studies.polynomials dataset=digits --erasers qleace gradient_orders --ridge 0.01

Where class moments are equal up to order N no polynomial of degree N beats a constant predictor: on the split on which
they were made equal, in the directions in which they were (`model=cubic` sees others, too).
"""

import argparse
import functools
import math
from collections.abc import Sequence
from itertools import combinations_with_replacement

import torch
import torch.nn.functional as F
from torch import Tensor

from conf.errors import exit_code
from erasure.source import LabelledImages
from erasure.spectrum import Whitening
from harness.table import Table
from scripts.options import parser
from scripts.show_erasers import erased_by

ERASERS = ("control", "leace", "qleace", "gradient_orders")
ITERATIONS = 300  # of L-BFGS, on all images at once


def main(arguments: Sequence[str] | None = None) -> int:
    own = parser("studies.polynomials", __doc__)
    own.add_argument("overrides", nargs="*", help="as for python -m mdl, e.g. dataset=digits")
    own.add_argument("--erasers", nargs="+", default=list(ERASERS), help="rows")
    own.add_argument("--directions", type=int, default=30, help="of most variance of the erased training split")
    own.add_argument("--degree", type=int, default=3, help="highest")
    own.add_argument("--ridge", type=float, default=0.1, help="λ of CE + λ/2 ‖W‖², features of variance one")
    options = own.parse_args(arguments)
    return exit_code(functools.partial(_show, options), "mdl", options.overrides)


def _show(options: argparse.Namespace) -> int:
    rows = []
    for eraser in options.erasers:
        splits = erased_by(eraser, options.overrides).splits
        for degree in range(1, options.degree + 1):
            training, test = losses(splits["train"], splits["test"], options.directions, degree, options.ridge)
            rows.append([eraser, f"{degree}", f"{training:.4f}", f"{test:.4f}"])
    caption = (
        f"Bits per label of logistic regression in {options.directions} directions, ridge {options.ridge:g} "
        "(log2 k without any knowledge)."
    )
    table = Table("polynomials", caption, ["eraser", "degree", "training split", "test split"], rows)
    table.show()
    return 0


def losses(
    train: LabelledImages, test: LabelledImages, directions: int, degree: int, ridge: float
) -> tuple[float, float]:
    """Bits per label on the training split, to which it is fitted, and on the test split."""
    whitening = Whitening.fit(train.images.flatten(1), directions)
    x, held = (hermite_features(whitening(s.images.flatten(1))[:, :directions], degree) for s in (train, test))
    mean, std = x.mean(0), x.std(0)
    x, held = (x - mean) / std, (held - mean) / std
    k = int(train.labels.max()) + 1
    weights = torch.zeros(x.shape[1] + 1, k, dtype=x.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=ITERATIONS, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(x @ weights[1:] + weights[0], train.labels)
        loss = loss + ridge / 2 * weights[1:].square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)  # pyright: ignore[reportArgumentType]
    with torch.no_grad():
        of = [(x, train.labels), (held, test.labels)]
        found = [float(F.cross_entropy(y @ weights[1:] + weights[0], z)) / math.log(2) for y, z in of]
    return found[0], found[1]


def hermite_features(x: Tensor, degree: int) -> Tensor:
    """Entries of He_1, ..., He_degree of [n, r], one of each that are equal: [n, (r + degree)! / (r! degree!) - 1]."""
    single = [torch.ones_like(x), x]
    for p in range(1, degree):
        single.append(x * single[-1] - p * single[-2])
    columns = []
    for p in range(1, degree + 1):
        for places in combinations_with_replacement(range(x.shape[1]), p):
            columns.append(math.prod(single[places.count(i)][:, i] for i in sorted(set(places))))
    return torch.stack(columns, 1)


if __name__ == "__main__":
    raise SystemExit(main())
