"""python -m scripts.studies.coord_check: does the scale of activations stay put as a network gets wider?

python -m scripts.studies.coord_check --out docs/coord_check.png
"""

import argparse
import itertools
import logging
import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from rich import box
from rich.table import Table
from torch import Tensor, nn

from erasure.progress import Display, console
from harness.style import STYLE
from models.mup import Parametrization
from scripts.benchmarks.scaling import COLOURS, PARAMETRIZATIONS, TITLES, Architecture, Steps, standardised_digits

WIDTHS = {
    "mlp": [64, 128, 256, 512, 1024, 2048],
    "lenet": [64, 128, 256, 512, 1024, 2048],
    "convnextv2": [10, 20, 40, 80],
    "swinv2": [20, 40, 80, 160],
}
DEFAULT = ["mlp", "mlp:activation=gelu", "mlp:activation=swiglu", "lenet", "convnextv2:depth=1", "swinv2:depth=1"]
_SKIPPED = 2  # of the first widths, too narrow for a limit to show, left out of the slope where enough remain


class Recorder:
    """Outputs of every linear and convolutional layer and of every residual block."""

    def __init__(self, model: nn.Module) -> None:
        self.outputs: dict[str, Tensor] = {}
        for name, module in model.named_modules():
            kind = type(module).__name__
            if kind.endswith(("Linear", "Conv2d", "Block")):
                module.register_forward_hook(lambda _, __, out, name=name: self.outputs.update({name: out.detach()}))


def coordinates(
    architecture: Architecture,
    width: int,
    parametrization: Parametrization,
    *,
    lr: float,
    steps: int,
    seeds: Sequence[int] = (0,),
) -> dict[str, list[tuple[float, float]]]:
    """Per layer and number of steps 0..steps: root mean square of its output, and of the output's change since step 0.

    Measured on 128 digits that do not change, averaged over seeds.
    """
    data = standardised_digits()
    probe = data[0][:128]
    collected: dict[str, list[Tensor]] = {}
    for seed in seeds:
        model = architecture.at(width, parametrization, (1, 8, 8))
        training, recorder = Steps(model, [seed], data, lr), Recorder(model)
        start: dict[str, Tensor] = {}
        rows: dict[str, list[tuple[float, float]]] = {}
        for step in range(steps + 1):
            if step:
                training.step()
            recorder.outputs.clear()
            with torch.no_grad():
                training.ensemble.logits(training.weights, probe)
            start = start or dict(recorder.outputs)
            for name, output in recorder.outputs.items():
                rows.setdefault(name, []).append((_rms(output), _rms(output - start[name])))
        for name, row in rows.items():
            if max(scale for scale, _ in row) == 0:  # says nothing: positions of 1×1 windows are zero
                continue
            collected.setdefault(name, []).append(torch.tensor(row))
    return {name: [(a, b) for a, b in torch.stack(rows).mean(0).tolist()] for name, rows in collected.items()}


def _rms(x: Tensor) -> float:
    return x.square().mean().sqrt().item()


def slope(widths: Sequence[int], values: Sequence[float]) -> float:
    """Exponent of the power of width that `values` follow; NaN where one of them is zero."""
    if min(values) <= 0 or not all(map(math.isfinite, values)):
        return math.nan
    return float(np.polyfit(np.log(widths), np.log(values), 1)[0])


Measured = dict[int, dict[str, list[tuple[float, float]]]]  # by width


def slopes(measured: Measured, step: int) -> dict[str, tuple[float, float]]:
    """Per layer, exponents of the output's scale and of the scale of its change, after `step` steps."""
    widths = sorted(measured)
    widths = widths[_SKIPPED:] if len(widths) >= 4 + _SKIPPED else widths
    return {
        layer: (_slope_of(measured, widths, layer, step, 0), _slope_of(measured, widths, layer, step, 1))
        for layer in measured[widths[0]]
    }


def _slope_of(measured: Measured, widths: Sequence[int], layer: str, step: int, which: int) -> float:
    return slope(widths, [measured[width][layer][step][which] for width in widths])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.studies.coord_check", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--model", nargs="+", default=DEFAULT, help="such as mlp:activation=gelu (default: %(default)s)"
    )
    parser.add_argument("--widths", nargs="+", type=int, help="at least 4; default: an eightfold range or more")
    parser.add_argument("--steps", type=int, default=5, help="optimiser steps, at least 1 (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=1e-3, help="at base size (default: %(default)s, the paper's)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="default: 0 1 2")
    parser.add_argument("--out", type=Path, default=Path("coord_check.png"), help="figure (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error(f"--steps={options.steps}: must be at least 1")
    if options.widths and len(set(options.widths)) < 4:
        parser.error(f"--widths={options.widths}: needs at least 4 different widths")
    architectures = [Architecture.parse(text) for text in options.model]
    results: dict[tuple[str, Parametrization], Measured] = {}
    with Display("coordinate check") as display:
        jobs: list[tuple[Architecture, Parametrization, int]] = [
            (architecture, parametrization, width)
            for architecture, parametrization in itertools.product(architectures, PARAMETRIZATIONS)
            for width in sorted(set(options.widths or WIDTHS[architecture.name]))
        ]
        costs = np.cumsum([float(width) ** 1.5 if a.name in ("convnextv2", "swinv2") else 1.0 for a, _, width in jobs])
        for (architecture, parametrization, width), done in zip(jobs, costs / costs[-1], strict=True):
            measured = coordinates(
                architecture, width, parametrization, lr=options.lr, steps=options.steps, seeds=options.seeds
            )
            results.setdefault((str(architecture), parametrization), {})[width] = measured
            display.update(float(done), f"{architecture}, {parametrization}, width {width}")
    for architecture in architectures:
        print_table(str(architecture), results, options.steps)
    draw([str(a) for a in architectures], results, options.steps, options.out)
    print(f"figure: {options.out}")
    return 0


def print_table(name: str, results: dict[tuple[str, Parametrization], Measured], steps: int) -> None:
    """Exponents per layer after the last step, under both parametrisations.

    While the readout is zero nothing before it has a gradient, so that hidden layers first change in step 2.
    """
    headings = [f"{TITLES[p].split()[0]}: {what}" for p in PARAMETRIZATIONS for what in ("output", "change")]
    table = Table("layer", *headings, box=box.SIMPLE_HEAD, title=f"{name}: exponent of width after {steps} steps")
    exponents = {p: slopes(results[name, p], steps) for p in PARAMETRIZATIONS}
    for layer in exponents["mup"]:
        cells = [f"{value:+.2f}" for p in PARAMETRIZATIONS for value in exponents[p][layer]]
        table.add_row(layer.removeprefix("network."), *cells)
    console().print(table)


def draw(names: Sequence[str], results: dict[tuple[str, Parametrization], Measured], steps: int, path: Path) -> None:
    """A column per model, a row per parametrisation; a line per layer, the readout's thick."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.4 * len(names), 6.4), layout="constrained")
        axes = figure.subplots(2, len(names), sharex="col", squeeze=False)
        for (row, parametrization), (column, name) in itertools.product(enumerate(PARAMETRIZATIONS), enumerate(names)):
            ax, measured = axes[row][column], results[name, parametrization]
            widths = sorted(measured)
            for layer in measured[widths[0]]:
                changes = [measured[width][layer][steps][1] for width in widths]
                style = {"linewidth": 2.4} if layer == "readout" else {"linewidth": 0.9, "alpha": 0.55}
                ax.plot(widths, changes, marker="o", markersize=3, color=COLOURS[parametrization], **style)
            ax.set(xscale="log", yscale="log", title=name if row == 0 else "")
            ax.set_xticks(widths, [str(width) for width in widths], fontsize=8)
            ax.minorticks_off()
            if row:
                ax.set_xlabel("width")
            if not column:
                ax.set_ylabel(f"{TITLES[parametrization]}\nchange of outputs (RMS), {steps} steps")
        for column in range(len(names)):
            limits = [axes[row][column].get_ylim() for row in (0, 1)]
            for row in (0, 1):
                axes[row][column].set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        figure.savefig(path)


if __name__ == "__main__":
    logging.getLogger("models").setLevel(logging.ERROR)  # once per run is enough to know that stages collapse
    raise SystemExit(main())
