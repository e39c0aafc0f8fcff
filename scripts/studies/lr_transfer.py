"""python -m scripts.studies.lr_transfer: does the best learning rate stay put as a network gets wider?

python -m scripts.studies.lr_transfer --out docs/lr_transfer.png
"""

import argparse
import itertools
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from rich import box
from rich.table import Table

from erasure.progress import Display, console
from harness.style import STYLE
from models.mup import Parametrization
from scripts.benchmarks.scaling import PARAMETRIZATIONS, TITLES, Architecture, Steps, standardised_digits


@dataclass(frozen=True)
class Study:
    """What is trained for one model: widths over an eightfold range, and how long."""

    widths: Sequence[int]
    steps: int
    seeds: Sequence[int]
    learning_rates: Sequence[float]  # consecutive powers of 2 times one another, so that an optimum lies within


def _powers(low: int, high: int) -> list[float]:
    return [2.0**k for k in range(low, high + 1)]


STUDIES: Mapping[str, Study] = {
    "mlp": Study([128, 256, 512, 1024], 40, [0, 1, 2, 3], _powers(-12, -3)),
    "convnextv2": Study([10, 20, 40, 80], 30, [0], _powers(-12, -6)),
}
DEFAULT = ["mlp", "convnextv2:depth=1"]

Losses = dict[int, dict[float, float]]  # by width and learning rate, in bits


def final_loss_bits(
    architecture: Architecture, width: int, parametrization: Parametrization, lr: float, study: Study
) -> float:
    """Loss on the training digits after the study's steps, averaged over its seeds; infinite where it diverged."""
    data = standardised_digits()
    model = architecture.at(width, parametrization, (1, 8, 8))
    stacks = [study.seeds] if model.stackable else [[seed] for seed in study.seeds]
    losses: list[float] = []
    for seeds in stacks:
        training = Steps(model, seeds, data, lr, warmup_steps=study.steps // 5)
        for _ in range(study.steps):
            training.step()
        losses += training.loss_bits()
    mean = sum(losses) / len(losses)
    return mean if math.isfinite(mean) else math.inf


def optimum(losses: Mapping[float, float]) -> float:
    """The learning rate of least loss: of a parabola in log-log through the best point and its neighbours."""
    rates = sorted(losses)
    best = min(range(len(rates)), key=lambda i: losses[rates[i]])
    near = [i for i in (best - 1, best, best + 1) if 0 <= i < len(rates) and math.isfinite(losses[rates[i]])]
    if len(near) < 3:
        return rates[best]
    a, b, _ = np.polyfit(np.log([rates[i] for i in near]), np.log([losses[rates[i]] for i in near]), 2)
    return float(np.exp(-b / (2 * a)))


def movement(losses: Losses) -> float:
    """Largest over smallest optimum among the widths; 1 is perfect transfer."""
    optima = [optimum(by_rate) for by_rate in losses.values()]
    return max(optima) / min(optima)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.studies.lr_transfer", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--model", nargs="+", default=DEFAULT, help="such as mlp:depth=4 (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("lr_transfer.png"), help="figure (default: %(default)s)")
    options = parser.parse_args(arguments)
    architectures = [Architecture.parse(text) for text in options.model]
    for architecture in architectures:
        if architecture.name not in STUDIES:
            parser.error(f"--model={architecture.name}: there is a study of {' and '.join(STUDIES)}")
    jobs: list[tuple[Architecture, Parametrization, int, float]] = [
        (architecture, parametrization, width, lr)
        for architecture in architectures
        for parametrization, width in itertools.product(PARAMETRIZATIONS, STUDIES[architecture.name].widths)
        for lr in STUDIES[architecture.name].learning_rates
    ]
    costs = np.cumsum([_cost(architecture.name, width) for architecture, _, width, _ in jobs])
    results: dict[tuple[str, Parametrization], Losses] = {}
    with Display("learning-rate transfer") as display:
        for (architecture, parametrization, width, lr), done in zip(jobs, costs / costs[-1], strict=True):
            losses = results.setdefault((str(architecture), parametrization), {}).setdefault(width, {})
            losses[lr] = final_loss_bits(architecture, width, parametrization, lr, STUDIES[architecture.name])
            display.update(float(done), f"{architecture}, {parametrization}, width {width}, learning rate {lr:.1e}")
    names = [str(architecture) for architecture in architectures]
    print_table(results)
    draw(names, results, options.out)
    print(f"figure: {options.out}")
    return 0


def _cost(name: str, width: int) -> float:
    """Seconds for one learning rate, roughly, for the time left."""
    return 0.3 + width / 1000 if name == "mlp" else 1.5 + width / 12


def print_table(results: Mapping[tuple[str, Parametrization], Losses]) -> None:
    """The optimum at every width and how far it moves."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("model", "parametrisation", "best learning rate at each width", "moves by"):
        table.add_column(heading)
    for (name, parametrization), losses in results.items():
        optima = "  ".join(f"{width}: {optimum(by_rate):.1e}" for width, by_rate in losses.items())
        table.add_row(name, TITLES[parametrization], optima, f"× {movement(losses):.2f}")
    console().print(table)


def draw(names: Sequence[str], results: Mapping[tuple[str, Parametrization], Losses], path: Path) -> None:
    """A row per model, a column per parametrisation; a curve per width, darker when wider, its optimum marked."""

    def lowest(name: str) -> float:
        """Bottom of a row's shared axis: the least loss of the model, with room for its mark."""
        return 0.8 * min(min(by_rate.values()) for p in PARAMETRIZATIONS for by_rate in results[name, p].values())

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.4, 3.5 * len(names)), layout="constrained")
        axes = figure.subplots(len(names), 2, sharex="row", sharey="row", squeeze=False)
        for (row, name), (column, parametrization) in itertools.product(enumerate(names), enumerate(PARAMETRIZATIONS)):
            ax, losses = axes[row][column], results[name, parametrization]
            for shade, (width, by_rate) in zip(np.linspace(0.25, 1.0, len(losses)), losses.items(), strict=True):
                colour = mpl.colormaps["viridis_r"](shade)
                rates = sorted(by_rate)
                ax.plot(
                    rates, [by_rate[rate] for rate in rates], color=colour, marker="o", markersize=3, label=f"{width}"
                )
                ax.plot([optimum(by_rate)], [min(by_rate.values())], marker="v", markersize=9, color=colour)
            ax.axhline(math.log2(10), color="#999999", linewidth=1, linestyle=(0, (4, 3)))
            ax.set(xscale="log", title=f"{TITLES[parametrization]}: optimum moves × {movement(losses):.1f}")
            ax.set_yscale("log")
            ax.set_ylim(lowest(name), 2 * math.log2(10))
            if row == len(names) - 1:
                ax.set_xlabel("learning rate at base width")
            if not column:
                ax.set_ylabel(f"{name}\nloss (bits per label)")
            if column:  # the same widths, beside the panels, where no curve is
                ax.legend(title="width", fontsize=9, loc="center left", bbox_to_anchor=(1.02, 0.5))
        figure.savefig(path)


if __name__ == "__main__":
    logging.getLogger("models").setLevel(logging.ERROR)  # once per run is enough to know that stages collapse
    raise SystemExit(main())
