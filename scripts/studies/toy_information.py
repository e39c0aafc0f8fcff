"""Unique information and its upper bound on a toy dataset (Harutyunyan et al. 2021, appendix A.1, Figure 3).

    python -m scripts.studies.toy_information --out docs/toy_information.svg

Two Gaussian classes of 40 points in the plane; a linear regression of the labels ±1, trained by SGD for 200 epochs with
batches of 5 and a learning rate of 0.1, many times at once. The information of an example z_i about the weights W is
I(W; z_i | S_-i), between W and a fresh draw of that example; its bound is KL(p(w | S) || p(w | S_-i)). Both are from
Gaussians fitted to the weights of many runs; the paper reports 1.3 and 3.0 nats for its example.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from conf.command_process import exit_code
from erasure.progress import report_progress, shown_progress
from harness.figure_helpers import figure_at, legible
from scripts.command_line import argument_parser, figure_file

_PER_CLASS, _BATCH, _LEARNING_RATE = 40, 5, 0.1
_CENTRE = 1.0  # the classes' means are ± (1, 1); the paper gives no numbers


class Information(NamedTuple):
    """Information of one example about the weights, in nats."""

    mutual: float
    bound: float


def draw(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return points with a constant 1 appended, [n, 3], and alternating labels ±1, [n]."""
    y = torch.where(torch.arange(n) % 2 == 0, 1.0, -1.0)
    x = torch.randn(n, 2, generator=generator) + _CENTRE * y[:, None]
    return torch.cat([x, torch.ones(n, 1)], 1), y


def train(x: Tensor, y: Tensor, runs: int, generator: torch.Generator, epochs: int) -> Tensor:
    """Return the weights [runs, 3] of SGD runs from zero that differ only in their batches.

    Args:
        x: points of each run's training set, [runs or 1, n, 3].
        y: labels, [runs or 1, n].
        runs: their number.
        generator: of batches.
        epochs: their number.
    """
    n = x.shape[1]
    w = torch.zeros(runs, x.shape[2])
    rows = torch.arange(runs)[:, None] if len(x) > 1 else torch.zeros(1, 1, dtype=torch.long)
    for _ in range(epochs):
        order = torch.rand(runs, n, generator=generator).argsort(1)
        for batch in order.split(_BATCH, 1):
            points = x[rows, batch]
            residual = (points * w[:, None]).sum(2) - y[rows, batch]
            w = w - _LEARNING_RATE * (points * residual[:, :, None]).mean(1)
    return w


def gaussian(w: Tensor) -> MultivariateNormal:
    w = w.double()
    return MultivariateNormal(w.mean(0), w.T.cov())


def information(
    points: Tensor, labels: Tensor, i: int, runs: int, draws: int, generator: torch.Generator, epochs: int
) -> tuple[Information, dict[str, Tensor]]:
    """Compute the information of example i, and weights drawn from p(w | S), p(w | S_-i) and the mixture over z_i'.

    I(W; z_i | S_-i) = E_z' KL(p(w | S_-i, z') || E_z'' p(w | S_-i, z'')), with `draws` draws of z', of either class,
    and a Gaussian for each; its logarithm is averaged over `runs` weights of each.
    """
    others = torch.arange(len(points)) != i
    x, y = points[others], labels[others]
    sets = (points[None], labels[None]), (x[None], y[None])
    whole, without = (train(*pair, runs, generator, epochs) for pair in sets)
    fresh, fresh_labels = draw(draws, generator)
    replaced, mixture = [], []
    for done, (point, label) in enumerate(zip(fresh, fresh_labels, strict=True)):
        report_progress(f"information of example {i}", done / draws, f"draw {done + 1} of {draws}")
        set_x, set_y = torch.cat([x, point[None]]), torch.cat([y, label[None]])
        replaced.append(train(set_x[None], set_y[None], runs, generator, epochs))
        mixture.append(gaussian(replaced[-1]))
    conditional = torch.stack([p.log_prob(w.double()).mean() for p, w in zip(mixture, replaced, strict=True)])
    among = [torch.stack([p.log_prob(w.double()) for p in mixture]) for w in replaced]
    mixed = torch.stack([(a.logsumexp(0) - torch.tensor(float(draws)).log()).mean() for a in among])
    information_nats = Information(
        float((conditional - mixed).mean()), float(kl_divergence(gaussian(whole), gaussian(without)))
    )
    return information_nats, {"p(w | S)": whole, "p(w | S₋ᵢ)": without, "mixture over zᵢ′": torch.cat(replaced)}


def figure(points: Tensor, labels: Tensor, i: int, weights: dict[str, Tensor], path: Path) -> None:
    """Draw the data, example i marked, and the three distributions of the two weights."""
    with figure_at(path, 6.4, 5.6) as drawn:
        axes = drawn.subplots(2, 2).flat
        for label, colour, beside in ((1.0, "#0072B2", (0.8, 0.27)), (-1.0, "#D55E00", (0.02, 0.68))):
            axes[0].scatter(*points[labels == label, :2].T, color=colour, s=14)
            axes[0].text(*beside, f"y = {label:.0f}", color=legible(colour), fontsize=9, transform=axes[0].transAxes)
        axes[0].scatter(*points[i, :2], facecolors="none", edgecolors="#000000", s=120)
        axes[0].set(title=f"data, example {i} marked", xlabel="x₁", ylabel="x₂")
        shared = torch.cat(list(weights.values()))[:, :2]
        low, high = shared.quantile(0.001, 0).tolist(), shared.quantile(0.999, 0).tolist()
        for ax, (name, w) in zip(axes[1:], weights.items(), strict=True):
            ax.hexbin(*w[:, :2].T, gridsize=25, mincnt=1, cmap="viridis", extent=(low[0], high[0], low[1], high[1]))
            ax.set(title=name, xlabel="w₁", ylabel="w₂", xlim=(low[0], high[0]), ylim=(low[1], high[1]))


def study(out: Path, runs: int = 2000, draws: int = 40, epochs: int = 200) -> int:
    """Print the information of three examples, and draw that of the worst fitted one."""
    generator = torch.Generator().manual_seed(0)
    points, labels = draw(2 * _PER_CLASS, generator)
    full, *_ = torch.linalg.lstsq(points, labels[:, None])
    residuals = (points @ full)[:, 0] - labels
    ranked = residuals.abs().argsort()
    for name, rank in (("best fitted", 0), ("median", len(ranked) // 2), ("worst fitted", -1)):
        i = int(ranked[rank])
        with shown_progress():
            estimate, weights = information(points, labels, i, runs, draws, generator, epochs)
        print(f"{name} example: I(W; z_i | S_-i) = {estimate.mutual:.2f}, KL = {estimate.bound:.2f} nats")
    figure(points, labels, i, weights, out)
    print(f"figure: {out}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("studies.toy_information", __doc__)
    parser.add_argument(
        "--out", type=figure_file, default=Path("toy_information.svg"), help="figure, of the worst fitted example"
    )
    return exit_code(functools.partial(study, parser.parse_args(arguments).out), "sample_info")


if __name__ == "__main__":
    raise SystemExit(main())
