"""Does the scale of activations stay put as a network gets wider?

python -m scripts.studies.coord_check --out docs/coord_check.svg
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from harness.figure_helpers import WIDTH, figure_at, name_lines
from harness.results.table import Table
from models.mup import Parametrization
from scripts.images_for_benchmarks import standardised_digits
from scripts.studies.mup_helpers import PARAMETRIZATIONS, TITLES, Architecture, Steps, argument_parser, over_widths

COLOURS = {"mup": "#0072B2", "standard": "#D55E00"}
WIDTHS = {
    "mlp": [64, 128, 256, 512, 1024, 2048],
    "lenet": [64, 128, 256, 512, 1024, 2048],
    "convnextv2": [10, 20, 40, 80],
    "swinv2": [20, 40, 80, 160],
}
DEFAULT = ["mlp", "mlp:activation=gelu", "mlp:activation=swiglu", "lenet", "convnextv2:depth=1", "swinv2:depth=1"]
_SKIPPED = 2  # first widths left out of the slope if enough remain: too narrow for the limit

Layers = dict[str, list[tuple[float, float]]]
Results = Mapping[tuple[str, Parametrization], Mapping[int, Layers]]


class Recorder:
    """Outputs of every linear and convolutional layer and of every residual block."""

    def __init__(self, model: nn.Module) -> None:
        self.outputs: dict[str, Tensor] = {}
        for name, module in model.named_modules():
            if type(module).__name__.endswith(("Linear", "Conv2d", "Block")):
                module.register_forward_hook(lambda _, __, out, name=name: self.outputs.update({name: out.detach()}))


def coordinates(
    architecture: Architecture,
    width: int,
    parametrization: Parametrization,
    *,
    lr: float,
    steps: int,
    seeds: Sequence[int] = (0,),
) -> Layers:
    """Return RMS of the output and of its change since step 0, per layer and step 0..steps.

    Measured on 128 fixed digits, averaged over seeds.
    """
    data = standardised_digits()
    collected: dict[str, list[Tensor]] = {}
    for seed in seeds:
        model = architecture.at(width, parametrization)
        training, recorder = Steps(model, [seed], data, lr), Recorder(model)
        outputs: list[dict[str, Tensor]] = []
        for step in range(steps + 1):
            if step:
                training.step()
            recorder.outputs.clear()
            with torch.no_grad():
                training.ensemble.logits(training.weights, data[0][:128])
            outputs.append(dict(recorder.outputs))
        for name, start in outputs[0].items():
            rows = torch.stack([torch.stack([_rms(at[name]), _rms(at[name] - start)]) for at in outputs])
            if rows[:, 0].max() > 0:  # positions of 1×1 windows are zero
                collected.setdefault(name, []).append(rows)
    return {name: [(a, b) for a, b in torch.stack(rows).mean(0).tolist()] for name, rows in collected.items()}


def _rms(x: Tensor) -> Tensor:
    return x.square().mean().sqrt()


def slope(widths: Sequence[int], values: Sequence[float]) -> float:
    """Fit the exponent of width in `values`; NaN if a value is zero."""
    if min(values) <= 0 or not all(map(math.isfinite, values)):
        return math.nan
    return float(np.polyfit(np.log(widths), np.log(values), 1)[0])


def slopes(measured: Mapping[int, Layers], step: int) -> dict[str, tuple[float, float]]:
    """Return exponents of the scales of output and change per layer, after `step` steps."""
    widths = sorted(measured)
    widths = widths[_SKIPPED:] if len(widths) >= 4 + _SKIPPED else widths

    def of(layer: str, which: int) -> float:
        return slope(widths, [measured[width][layer][step][which] for width in widths])

    return {layer: (of(layer, 0), of(layer, 1)) for layer in measured[widths[0]]}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("coord_check", __doc__, DEFAULT)
    parser.add_argument("--widths", nargs="+", type=int, help="at least 4; default: an eightfold range or more")
    parser.add_argument("--steps", type=int, default=5, help="optimiser steps, at least 1")
    parser.add_argument("--lr", type=float, default=1e-3, help="at base size, by default the paper's")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="averaged over")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error(f"--steps={options.steps}: must be at least 1")
    if options.widths and len(set(options.widths)) < 4:
        parser.error(f"--widths={options.widths}: needs at least 4 different widths")
    architectures = [Architecture.parse(text) for text in options.model]
    how = {"lr": options.lr, "steps": options.steps, "seeds": options.seeds}
    results = over_widths(
        "coordinate check",
        architectures,
        lambda name: sorted(set(options.widths or WIDTHS[name])),
        lambda *chosen: coordinates(*chosen, **how),
    )
    for architecture in architectures:
        print_table(str(architecture), results, options.steps)
    draw([str(a) for a in architectures], results, options.steps, options.out)
    print(f"figure: {options.out}")
    return 0


def print_table(name: str, results: Results, steps: int) -> None:
    """Exponents per layer after the last step, under both parametrisations.

    The readout is zero at first, so that hidden layers have no gradient until step 2.
    """
    headings = [f"{TITLES[p].split()[0]}: {what}" for p in PARAMETRIZATIONS for what in ("output", "change")]
    exponents = {p: slopes(results[name, p], steps) for p in PARAMETRIZATIONS}
    rows = [
        [layer.removeprefix("network."), *(f"{value:+.2f}" for p in PARAMETRIZATIONS for value in exponents[p][layer])]
        for layer in exponents["mup"]
    ]
    Table("coord_check", (), ["layer", *headings], rows).show(f"{name}: exponent of width after {steps} steps")


def draw(names: Sequence[str], results: Results, steps: int, path: Path) -> None:
    """Draw a row per model, a column per parametrisation; a line per layer, the readout's thick."""
    with figure_at(path, WIDTH, 1.9 * len(names)) as figure:
        axes = figure.subplots(len(names), 2, sharex="row", sharey="row", squeeze=False)
        for (row, name), (column, parametrization) in itertools.product(enumerate(names), enumerate(PARAMETRIZATIONS)):
            ax, measured = axes[row][column], results[name, parametrization]
            widths = sorted(measured)
            others = [layer for layer in measured[widths[0]] if layer != "readout"]
            shown = {others[0]: f"{len(others)} other layers", "readout": "readout"} if column else {}
            for layer in measured[widths[0]]:
                changes = [measured[width][layer][steps][1] for width in widths]
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
        figure.supylabel(f"change of outputs (RMS) after {steps} steps")
        name_lines(figure, axes.flatten().tolist())


if __name__ == "__main__":
    raise SystemExit(main())
