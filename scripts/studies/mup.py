"""Do the scale of activations and the best learning rate stay put as a network gets wider?

    python -m scripts.studies.mup --out docs      # draws coord_check.svg and lr_transfer.svg; five minutes on two cores

Trains networks of several widths on the digits for a few steps, under μP and the standard parametrisation. Prints the
best learning rate of each width, and by how much it moves.
"""

import itertools
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.ticker import NullFormatter
from torch import Tensor, nn

from conf.groups import keys
from conf.target_class import Target
from erasure.dataset import LabelledImages
from erasure.progress import Display
from harness.figure_helpers import WIDTH, figure_at, name_lines
from harness.results.table import Table
from models.classifier import Classifier
from models.mup import Parametrization
from scripts.command_line import argument_parser
from scripts.images_for_benchmarks import standardised_digits
from train.device_images import DeviceImages
from train.ensemble import Ensemble
from train.randomness import generator
from train.schedule_free import ScheduleFree

PARAMETRIZATIONS: tuple[Parametrization, ...] = ("mup", "standard")
TITLES = {"mup": "μP", "standard": "standard parametrisation"}
COLOURS = {"mup": "#0072B2", "standard": "#D55E00"}
STEPS, LEARNING_RATE, SEEDS = 5, 1e-3, (0, 1, 2)  # of the coordinate check
WIDTHS: Mapping[str, Sequence[int]] = {  # of the coordinate check
    "mlp": [64, 128, 256, 512, 1024, 2048],
    "mlp, activation gelu": [64, 128, 256, 512, 1024, 2048],
    "mlp, activation swiglu": [64, 128, 256, 512, 1024, 2048],
    "lenet": [64, 128, 256, 512, 1024, 2048],
    "convnextv2, depth 1": [10, 20, 40, 80],
    "swinv2, depth 1": [20, 40, 80, 160],
}


@dataclass(frozen=True)
class Transfer:
    """Search for the best learning rate of a model: widths over an eightfold range, steps, seeds, learning rates."""

    widths: Sequence[int]
    steps: int
    seeds: Sequence[int]
    learning_rates: Sequence[float]


TRANSFERS: Mapping[str, Transfer] = {
    "mlp": Transfer([128, 256, 512, 1024], 40, [0, 1, 2, 3], [2.0**k for k in range(-12, -2)]),
    "convnextv2, depth 1": Transfer([10, 20, 40, 80], 30, [0], [2.0**k for k in range(-12, -5)]),
}

Layers = dict[str, list[tuple[float, float]]]  # by layer and step, the scale of outputs and of their change
Losses = Mapping[int, Mapping[float, float]]  # by width and learning rate, in bits


def build(architecture: str, width: int, parametrization: Parametrization) -> Classifier:
    """Return a model of `conf/model` with changed options, for the digits: "convnextv2, depth 1"."""
    name, *changes = architecture.split(", ")
    options: dict[str, Any] = {"width": width, "parametrization": parametrization}
    for option, value in map(str.split, changes):
        options[option] = int(value) if value.isdigit() else value
    return Target({**keys("model", name), **options}, Classifier).build((1, 8, 8), 10)


class Training:
    """Training steps of one or more seeds of a model on the digits, each on batches from its generator.

    Args:
        model: the architecture.
        seeds: they train in one network.
        lr: learning rate at base width and depth.
        warmup_steps: steps over which the learning rate rises from zero.
    """

    def __init__(self, model: Classifier, seeds: Sequence[int], lr: float, warmup_steps: int = 0) -> None:
        self.ensemble, self.data = Ensemble(model), standardised_digits()
        initial = self.ensemble.initial_weights([generator(seed, "init") for seed in seeds], self.data[0].device)
        self.optimizer = ScheduleFree(initial, model.learning_rates(), lr=lr, warmup_steps=warmup_steps)
        self._batches = [generator(seed, "batches") for seed in seeds]

    def step(self) -> None:
        """Take one step of every seed, each on its batch of 64."""
        x, z = self.data
        index = torch.stack([torch.randint(len(z), (64,), generator=source) for source in self._batches])
        _, gradients = self.ensemble.gradients(self.optimizer.weights, x[index], z[index])
        self.optimizer.step(gradients)

    def loss_bits(self) -> list[float]:
        """Return the loss of the averaged weights on all data, per seed."""
        unchanged = {"padding": 0, "flip": False, "device": self.data[0].device}
        images = DeviceImages(LabelledImages(*self.data), torch.zeros(1), torch.ones(1), **unchanged)
        return [float(bits) for bits in self.ensemble.score(self.optimizer.averaged(), images).bits]


def coordinates(
    architecture: str, width: int, parametrization: Parametrization, *, steps: int = STEPS, seeds: Sequence[int] = SEEDS
) -> Layers:
    """Return RMS of the output and of its change since step 0, per layer and step 0..steps.

    Layers are linear, convolutional or residual blocks. Measured on 128 fixed digits, averaged over seeds.
    """
    collected: dict[str, list[Tensor]] = {}
    for seed in seeds:
        model = build(architecture, width, parametrization)
        training, recorded = Training(model, [seed], LEARNING_RATE), dict[str, Tensor]()
        for name, module in model.named_modules():
            if type(module).__name__.endswith(("Linear", "Conv2d", "Block")):
                module.register_forward_hook(partial(_record, recorded, name))
        outputs: list[dict[str, Tensor]] = []
        for step in range(steps + 1):
            if step:
                training.step()
            recorded.clear()
            with torch.no_grad():
                training.ensemble.logits(training.optimizer.weights, training.data[0][:128])
            outputs.append(dict(recorded))
        for name, start in outputs[0].items():
            rows = torch.stack([torch.stack([_rms(at[name]), _rms(at[name] - start)]) for at in outputs])
            if rows[:, 0].max() > 0:  # positions of 1×1 windows are zero
                collected.setdefault(name, []).append(rows)
    return {name: [(a, b) for a, b in torch.stack(rows).mean(0).tolist()] for name, rows in collected.items()}


def _record(outputs: dict[str, Tensor], name: str, _module: nn.Module, _inputs: Any, output: Tensor) -> None:
    outputs[name] = output.detach()


def _rms(x: Tensor) -> Tensor:
    return x.square().mean().sqrt()


def final_loss_bits(
    architecture: str, width: int, parametrization: Parametrization, lr: float, transfer: Transfer
) -> float:
    """Return the training loss after the search's steps, mean over seeds; infinite if it diverged."""
    model = build(architecture, width, parametrization)
    losses: list[float] = []
    for seeds in [transfer.seeds] if model.stackable else [[seed] for seed in transfer.seeds]:
        training = Training(model, seeds, lr, warmup_steps=transfer.steps // 5)
        for _ in range(transfer.steps):
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


def study(
    widths: Mapping[str, Sequence[int]] = WIDTHS, transfers: Mapping[str, Transfer] = TRANSFERS, out: Path = Path()
) -> None:
    """Measure, print the best learning rates, and draw both figures into `out`."""
    logging.getLogger("models").setLevel(logging.ERROR)  # warnings about collapsing stages
    changes: dict[tuple[str, Parametrization], dict[int, Layers]] = {}
    losses: dict[tuple[str, Parametrization], dict[int, dict[float, float]]] = {}
    with Display("μP") as display:
        for i, (name, chosen) in enumerate(itertools.product(widths, PARAMETRIZATIONS)):
            display.update(0.2 * i / len(widths) / 2, f"activations of {name}, {chosen}")
            changes[name, chosen] = {width: coordinates(name, width, chosen) for width in widths[name]}
        for i, (name, chosen) in enumerate(itertools.product(transfers, PARAMETRIZATIONS)):
            display.update(0.2 + 0.8 * i / len(transfers) / 2, f"learning rates of {name}, {chosen}")
            search = transfers[name]
            losses[name, chosen] = {
                width: {lr: final_loss_bits(name, width, chosen, lr, search) for lr in search.learning_rates}
                for width in search.widths
            }
    rows = [
        [
            name,
            TITLES[chosen],
            "  ".join(f"{width}: {optimum(by_rate):.1e}" for width, by_rate in of_widths.items()),
            f"× {movement(of_widths):.2f}",
        ]
        for (name, chosen), of_widths in losses.items()
    ]
    Table("lr_transfer", (), ("model", "parametrisation", "best learning rate at each width", "moves by"), rows).show()
    draw_changes([*widths], changes, out / "coord_check.svg")
    draw_losses([*transfers], losses, out / "lr_transfer.svg")
    print(f"figures: {out / 'coord_check.svg'}, {out / 'lr_transfer.svg'}")


def draw_changes(
    names: Sequence[str], results: Mapping[tuple[str, Parametrization], Mapping[int, Layers]], path: Path
) -> None:
    """Draw a row per model, a column per parametrisation; a line per layer, the readout's thick."""
    with figure_at(path, WIDTH, 1.9 * len(names)) as figure:
        axes = figure.subplots(len(names), 2, sharex="row", sharey="row", squeeze=False)
        for (row, name), (column, parametrization) in itertools.product(enumerate(names), enumerate(PARAMETRIZATIONS)):
            ax, measured = axes[row][column], results[name, parametrization]
            widths = sorted(measured)
            others = [layer for layer in measured[widths[0]] if layer != "readout"]
            shown = {others[0]: f"{len(others)} other layers", "readout": "readout"} if column else {}
            for layer in measured[widths[0]]:
                changes = [measured[width][layer][-1][1] for width in widths]
                style = {"linewidth": 2.4} if layer == "readout" else {"linewidth": 0.9, "alpha": 0.7}
                colour = COLOURS[parametrization]
                ax.plot(widths, changes, marker="o", markersize=3, color=colour, label=shown.get(layer), **style)
            ax.set(xscale="log", yscale="log", title="" if row else TITLES[parametrization])
            ax.set_xticks(widths, [str(width) for width in widths], fontsize=8)
            ax.minorticks_off()
            if row == len(names) - 1:
                ax.set_xlabel("width")
            if not column:
                ax.set_ylabel(name.replace(", ", "\n"))
        figure.supylabel(f"change of outputs (RMS) after {STEPS} steps")
        name_lines(figure, axes.flatten().tolist())


def draw_losses(names: Sequence[str], results: Mapping[tuple[str, Parametrization], Losses], path: Path) -> None:
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("studies.mup", __doc__)
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the figures")
    study(out=parser.parse_args(arguments).out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
