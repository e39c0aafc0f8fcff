"""Figures of loss curves, and what figures of runs share.

A figure draws panels, which are titles and rows (`harness.results.arrange`), with the colours of their erasers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from harness.figure_helpers import chance_line, figure_of_panels, name_lines, wrapped
from harness.results.arrange import colours_of, panels
from harness.results.run_labels import Label
from harness.results.table import Row, values

Colours = Mapping[Label, str]  # of erasers, in their order
Panel = tuple[str, Sequence[Row]]
Drawing = tuple[Callable[..., Path], Sequence[Any]]  # a function of panels, colours and path, and the panels
MAX_PANELS = 5  # of one figure, besides the costs of erasure; more would be too small to print


def figures_of(table: pd.DataFrame) -> dict[str, Drawing]:
    """Return the figure of loss curves, by its caption, where there are any."""
    shown = [panel for panel in panels(table) if any(entry["curves"] for entry in panel[1])]
    return {"loss curves": (draw_loss_curves, shown)} if shown else {}


def draw_parts(draw: Callable[..., Path], panels: Sequence[Any], colours: Colours, path: Path) -> list[Path]:
    """Draw panels to a path; those after the first `MAX_PANELS` to paths of the same name with -2, -3, ..."""
    return [
        draw(panels[i : i + MAX_PANELS], colours, path.with_stem(f"{path.stem}-{part}") if part > 1 else path)
        for part, i in enumerate(range(0, len(panels), MAX_PANELS), 1)
    ]


def draw_each(draw: Callable[..., Path], tables: Sequence[pd.DataFrame], path: Path) -> None:
    """Draw a figure of a sweep's only table to a path, or of each to that path with its name; print the paths."""
    colours = colours_of(tables)
    for table in tables:
        to = path if len(tables) == 1 else path.with_stem(f"{path.stem}-{table['table'].iat[0]}")
        for drawn in draw_parts(draw, panels(table), colours, to):
            print(f"figure: {drawn}")


def draw_loss_curves(shown: Sequence[Panel], colours: Colours, path: Path) -> Path:
    """Draw validation loss over epochs, each seed as a thin line and their mean as long as all seeds train."""
    with figure_of_panels(path, len(shown)) as (figure, axes):
        for (title, entries), ax in zip(shown, axes, strict=True):
            for entry in entries:
                curves, missing = [*entry["curves"].values()], entry["incomplete"]
                width = line_width(colours, entry["eraser"])
                look: Any = {"color": colours[entry["eraser"]], "linestyle": "--" if missing else "-"}
                for curve in curves[: len(curves) if len(curves) > 1 else 0]:
                    ax.plot(curve.epochs, curve.validation_bits, linewidth=0.7, alpha=0.45, **look)
                shortest = min((len(curve.epochs) for curve in curves), default=0)
                middle = np.mean([curve.validation_bits[:shortest] for curve in curves], axis=0) if curves else []
                label = f"{entry['eraser'].display} ({missing})" if missing else entry["eraser"].display
                ax.plot(curves[0].epochs[:shortest] if curves else [], middle, linewidth=width, label=label, **look)
            uniform, entropy = math.log2(entries[0]["num_classes"][0]), values(entries[0], "label_entropy_bits")
            chance_line(ax, *((entropy[0], "label entropy") if entropy else (uniform, "uniform code")))
            ax.set_title(wrapped(title, 4.0))
            ax.set(xlabel="epoch", ylabel="validation loss\n(bits per label)")
            _epoch_axis(ax, max(epochs for entry in entries for epochs in entry["epochs"]))
        name_lines(figure, axes)
    return path


def line_width(colours: Colours, eraser: Label) -> float:
    """Return points: the first erasers' lines are the widest, and seen beneath those that coincide with them."""
    return max(1.2, 3.2 - 0.5 * [*colours].index(eraser))


def _epoch_axis(ax: Axes, last: float) -> None:
    """Logarithmic in epoch + 1 up to the `last` epoch, so that epoch 0 is on it and no curve has a kink."""
    steps = (digit * 10**power for power in range(6) for digit in ((1, 3) if last > 100 else (1, 2, 5)))
    ax.set_xscale("function", functions=(np.log1p, np.expm1))
    ax.set_xticks([0, *(step for step in steps if step <= last)])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda epoch, _: f"{epoch:,.0f}"))
    ax.set_xlim(0, max(last, 1))
