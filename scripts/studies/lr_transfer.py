"""Does the best learning rate stay put as a network gets wider?

python -m scripts.studies.lr_transfer --out docs/lr_transfer.svg
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.ticker import NullFormatter

from harness.figure_helpers import WIDTH, figure_at, name_lines
from harness.results.table import Table
from models.mup import Parametrization
from scripts.images_for_benchmarks import standardised_digits
from scripts.studies.mup_helpers import PARAMETRIZATIONS, TITLES, Architecture, Steps, argument_parser, over_widths


@dataclass(frozen=True)
class Study:
    """Settings of one model: widths over an eightfold range, steps, seeds, and learning rates (powers of 2)."""

    widths: Sequence[int]
    steps: int
    seeds: Sequence[int]
    learning_rates: Sequence[float]


STUDIES: Mapping[str, Study] = {
    "mlp": Study([128, 256, 512, 1024], 40, [0, 1, 2, 3], [2.0**k for k in range(-12, -2)]),
    "convnextv2": Study([10, 20, 40, 80], 30, [0], [2.0**k for k in range(-12, -5)]),
}

Losses = Mapping[int, Mapping[float, float]]  # by width and learning rate, in bits
Results = Mapping[tuple[str, Parametrization], Losses]


def final_loss_bits(
    architecture: Architecture, width: int, parametrization: Parametrization, lr: float, study: Study
) -> float:
    """Return the training loss after the study's steps, mean over seeds; infinite if it diverged."""
    model = architecture.at(width, parametrization)
    losses: list[float] = []
    for seeds in [study.seeds] if model.stackable else [[seed] for seed in study.seeds]:
        training = Steps(model, seeds, standardised_digits(), lr, warmup_steps=study.steps // 5)
        for _ in range(study.steps):
            training.step()
        losses += training.loss_bits()
    mean = sum(losses) / len(losses)
    return mean if math.isfinite(mean) else math.inf


def optimum(losses: Mapping[float, float]) -> float:
    """Return the learning rate of least loss, by a log-log parabola through the best point and its neighbours."""
    rates = sorted(losses)
    best = min(range(len(rates)), key=lambda i: losses[rates[i]])
    near = [i for i in (best - 1, best, best + 1) if 0 <= i < len(rates) and math.isfinite(losses[rates[i]])]
    if len(near) < 3:
        return rates[best]
    a, b, _ = np.polyfit(np.log([rates[i] for i in near]), np.log([losses[rates[i]] for i in near]), 2)
    return float(np.exp(-b / (2 * a)))


def movement(losses: Losses) -> float:
    """Return the ratio of largest to smallest optimum among the widths; 1 is perfect transfer."""
    optima = [optimum(by_rate) for by_rate in losses.values()]
    return max(optima) / min(optima)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("lr_transfer", __doc__, ["mlp", "convnextv2:depth=1"])
    options = parser.parse_args(arguments)
    architectures = [Architecture.parse(text) for text in options.model]
    for architecture in architectures:
        if architecture.name not in STUDIES:
            parser.error(f"--model={architecture.name}: there is a study of {' and '.join(STUDIES)}")

    def losses(architecture: Architecture, width: int, parametrization: Parametrization) -> Mapping[float, float]:
        study = STUDIES[architecture.name]
        return {lr: final_loss_bits(architecture, width, parametrization, lr, study) for lr in study.learning_rates}

    results = over_widths("learning-rate transfer", architectures, lambda name: STUDIES[name].widths, losses)
    print_table(results)
    draw([str(architecture) for architecture in architectures], results, options.out)
    print(f"figure: {options.out}")
    return 0


def print_table(results: Results) -> None:
    """Tabulate the optimum at every width and how far it moves."""
    rows = []
    for (name, parametrization), losses in results.items():
        optima = "  ".join(f"{width}: {optimum(by_rate):.1e}" for width, by_rate in losses.items())
        rows.append([name, TITLES[parametrization], optima, f"× {movement(losses):.2f}"])
    Table("lr_transfer", (), ("model", "parametrisation", "best learning rate at each width", "moves by"), rows).show()


def draw(names: Sequence[str], results: Results, path: Path) -> None:
    """Draw a row per model, a column per parametrisation; a curve per width, darker when wider, its optimum marked."""
    with figure_at(path, WIDTH, 2.8 * len(names)) as figure:
        axes = figure.subplots(len(names), 2, sharex="row", sharey="row", squeeze=False)
        for (row, name), (column, parametrization) in itertools.product(enumerate(names), enumerate(PARAMETRIZATIONS)):
            ax, losses = axes[row][column], results[name, parametrization]
            for shade, (width, by_rate) in zip(np.linspace(0.2, 0.6, len(losses)), losses.items(), strict=True):
                colour, rates = mpl.colormaps["viridis_r"](shade), sorted(by_rate)
                bits = [by_rate[rate] for rate in rates]
                ax.plot(rates, bits, color=colour, marker="o", markersize=3, label=f"width {width}" if column else None)
                ax.plot([optimum(by_rate)], [min(bits)], marker="v", markersize=9, color=colour)
            ax.axhline(math.log2(10), color="#999999", linewidth=1, linestyle=(0, (4, 3)))
            ax.set(xscale="log", yscale="log")
            ax.yaxis.set_minor_formatter(NullFormatter())
            moved = f"optimum moves × {movement(losses):.1f}"
            ax.set_title(moved if row else f"{TITLES[parametrization]}\n{moved}", fontsize=10)
            lowest = min(min(each.values()) for p in PARAMETRIZATIONS for each in results[name, p].values())
            ax.set_ylim(0.8 * lowest, 2 * math.log2(10))
            if row == len(names) - 1:
                ax.set_xlabel("learning rate\nat base width")
            if not column:
                ax.set_ylabel(f"{name}\nloss (bits per label)")
        name_lines(figure, axes.flatten().tolist())


if __name__ == "__main__":
    raise SystemExit(main())
