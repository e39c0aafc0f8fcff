"""Figures of mdl's and train's runs: learning curves and what erasure costs, loss curves, codelengths over a size.

Each draws panels, which are titles and rows (`harness.results.arrange`), with the colours of their erasers.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from harness.figure_helpers import band, chance_line, figure_of_panels, shared_legend, wrapped
from harness.results.arrange import colours_of, finished, model_of, panels
from harness.results.run_labels import Label, labels
from harness.results.table import Row, values
from harness.statistics import Difference, Spread, seeds_text, signed

Colours = Mapping[Label, str]  # of erasers, in their order
Panel = tuple[str, Sequence[Row]]
Drawing = tuple[Callable[..., Path], Sequence[Any]]  # a function of panels, colours and path, and the panels
MAX_PANELS = 5  # of one figure, besides the costs of erasure; more would be too small to print


def figures_of(table: pd.DataFrame) -> dict[str, Drawing]:
    """Return the figures of runs of `mdl` or `train` that have panels, by caption."""
    sizes, models = ("width", "depth") if table["command"].iat[0] == "mdl" else (), panels(table)
    figures: dict[str, Drawing] = {
        "learning curves": (draw_learning_curves, models if sizes else ()),
        **{f"over {size}": (partial(draw_scaling, size), scaling_panels(finished(table), size)) for size in sizes},
        "loss curves": (draw_loss_curves, [panel for panel in models if any(entry["curves"] for entry in panel[1])]),
    }
    return {caption: figure for caption, figure in figures.items() if figure[1]}


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


def draw_learning_curves(shown: Sequence[Panel], colours: Colours, path: Path) -> Path:
    """Draw the loss on the next chunk over training size, a panel per row, and bars of the differences to control."""
    compares = any(entry["bits_per_label_difference"] is not None for _, entries in shown for entry in entries)
    with figure_of_panels(path, len(shown) + compares) as (figure, axes):
        for (title, entries), ax in zip(shown, axes, strict=False):
            sizes: list[int] = []
            for entry in entries:
                members = [*entry["members"].values()]
                sizes = [point.n for point in members[0][0].coding]
                losses = [[point.ce_next_bits[s] for point in result.coding] for result, s in members]
                width = _line_width(colours, entry["eraser"])
                style = {"marker": "o", "markersize": 2 + width, "linewidth": width}
                band(ax, sizes, losses, color=colours[entry["eraser"]], label=entry["eraser"].display, **style)
            chance_line(ax, math.log2(entries[0]["num_classes"][0]), "uniform code")
            _size_axis(ax, sizes, most=5)
            ax.set_title(wrapped(title, 4.0))
            ax.set(xlabel="training examples", ylabel="loss on the next chunk (bits per label)")
        if compares:
            _draw_differences(axes[-1], shown, colours)
        shared_legend(figure, axes[: len(shown)])
    return path


def _draw_differences(ax: Axes, shown: Sequence[Panel], colours: Colours) -> None:
    """Draw bars of paired differences to the control with their standard errors, grouped by row."""
    height, counts = 0.8 / max(2, sum(eraser.name != "control" for eraser in colours)), set[int]()
    for i, (_, entries) in enumerate(shown):
        compared = [entry for entry in entries if entry["bits_per_label_difference"] is not None]
        for j, entry in enumerate(compared):
            difference: Difference = entry["bits_per_label_difference"]
            counts.add(difference.seeds)
            error, y = difference.standard_error, i + (j - (len(compared) - 1) / 2) * height
            look = {"color": colours[entry["eraser"]], "capsize": 3, "ecolor": "#333333"}
            bar = ax.barh(y, difference.mean, height * 0.85, xerr=error or None, **look)
            text = signed(difference.mean) + (", one seed" if error is None else f" ± {error:.3f}")
            ax.bar_label(bar, [text], padding=6, fontsize=9, color="#333333")
    ax.axvline(0, color="#333333", linewidth=1)
    ax.set_yticks(range(len(shown)), [wrapped(title, 1.8) for title, _ in shown])
    ax.set_ylim(len(shown) - 0.4, -0.6)
    ax.margins(x=0.45)
    ax.grid(axis="y", visible=False)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
    over = " or ".join(seeds_text(count) for count in sorted(counts - {1}))
    title = f"cost of erasure ± standard error, {over}" if over else "cost of erasure"
    ax.set(title=title, xlabel="codelength minus control (bits per label)")


def draw_loss_curves(shown: Sequence[Panel], colours: Colours, path: Path) -> Path:
    """Draw validation loss over epochs, each seed as a thin line and their mean as long as all seeds train."""
    with figure_of_panels(path, len(shown)) as (figure, axes):
        for (title, entries), ax in zip(shown, axes, strict=True):
            for entry in entries:
                curves, missing = [*entry["curves"].values()], entry["incomplete"]
                width = _line_width(colours, entry["eraser"])
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
            ax.set(xlabel="epoch", ylabel="validation loss (bits per label)")
            _epoch_axis(ax, max(epochs for entry in entries for epochs in entry["epochs"]))
        shared_legend(figure, axes)
    return path


def _line_width(colours: Colours, eraser: Label) -> float:
    """Return points: the first erasers' lines are the widest, and seen beneath those that coincide with them."""
    return max(1.2, 3.2 - 0.5 * [*colours].index(eraser))


def _epoch_axis(ax: Axes, last: float) -> None:
    """Logarithmic in epoch + 1 up to the `last` epoch, so that epoch 0 is on it and no curve has a kink."""
    steps = (digit * 10**power for power in range(6) for digit in ((1, 3) if last > 100 else (1, 2, 5)))
    ax.set_xscale("function", functions=(np.log1p, np.expm1))
    ax.set_xticks([0, *(step for step in steps if step <= last)])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda epoch, _: f"{epoch:,.0f}"))
    ax.set_xlim(0, max(last, 1))


def _size_axis(ax: Axes, sizes: Sequence[int], most: int) -> None:
    """Logarithmic in sizes, of which about as many as `most` are labelled, the last among them."""
    ticks = sizes[::-1][:: max(1, math.ceil(len(sizes) / most))][::-1]
    ax.set_xscale("log")
    ax.set_xticks(ticks, [f"{size:,}" for size in ticks])
    ax.minorticks_off()


def scaling_panels(entries: Sequence[Row], option: str) -> list[Panel]:
    """Return entries whose models differ in one number only, of two sizes at least, under what they share."""
    by_shared: dict[str, list[Row]] = {}
    for entry in entries:
        row = model_of(entry["runs"][0].config)
        if isinstance(row["model"].get(option), int) and row["model"][option] > 0:
            shared = row | {"model": {key: value for key, value in row["model"].items() if key != option}}
            by_shared.setdefault(json.dumps(shared, sort_keys=True), []).append(entry)
    several = {shared: of for shared, of in by_shared.items() if len({entry["model"] for entry in of}) > 1}
    titles = labels([*map(json.loads, several)], ("model",))
    return [(title.display, of) for title, of in zip(titles, several.values(), strict=True)]


def draw_scaling(option: str, shown: Sequence[Panel], colours: Colours, path: Path) -> Path:
    """Draw codelengths and their increase over the control over a size; hollow where they are unsound."""
    measures = {"codelength ± std": _codelength}
    if any(entry["bits_per_label_difference"] for _, entries in shown for entry in entries):
        measures["increase over control ± s.e."] = _increase
    drawn = [(*panel, measure) for panel in shown for measure in measures.items()]
    with figure_of_panels(path, len(drawn)) as (figure, axes):
        for (title, entries, (label, measure)), ax in zip(drawn, axes, strict=True):
            sizes = [entry["runs"][0].config["model"][option] for entry in entries]
            unsound = {entry["model"] for entry in entries if entry["is_control"] and not is_sound(entry)}
            for eraser in sorted({entry["eraser"] for entry in entries}, key=[*colours].index):
                points = sorted(
                    (size, *numbers, is_sound(entry) and (measure is _codelength or entry["model"] not in unsound))
                    for size, entry in zip(sizes, entries, strict=True)
                    if entry["eraser"] == eraser and (numbers := measure(entry))
                )
                look: Any = {"color": colours[eraser], "markersize": 5}
                if points:
                    x, middle, error, _ = zip(*points, strict=True)
                    ax.errorbar(x, middle, error, fmt="-o", capsize=3, label=eraser.display, **look)
                hollow = [(x, middle) for x, middle, _, sound in points if not sound]
                ax.plot(*(zip(*hollow, strict=True) if hollow else ([], [])), "o", markerfacecolor="white", **look)
            ax.set_title(wrapped(title, 3.0))
            if measure is _increase:  # below it a run backfires
                ax.axhline(0, color="#999999", linewidth=1, linestyle=(0, (4, 3)))
            ax.set(xlabel=option, ylabel=f"{label}\n(bits per label)")
            _size_axis(ax, sorted(set(sizes)), most=6)
        shared_legend(figure, axes)
    return path


def _codelength(entry: Row) -> tuple[float, float] | None:
    over = Spread.of(entry["bits_per_label"])
    return over.mean, over.std or 0.0


def _increase(entry: Row) -> tuple[float, float] | None:
    difference = entry["bits_per_label_difference"]
    return None if difference is None else (difference.mean, difference.standard_error or 0.0)


def is_sound(entry: Row) -> bool:
    """Return whether the codelength has every seed, and rests on no training that never left the plateau."""
    return not entry["incomplete"] and not entry["coding_on_plateau"]
