"""Figures of a run's scores, images and summaries, and of movement and agreement of scores between runs."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from harness.figure_helpers import (
    WIDTH,
    band,
    draw_image,
    figure_at,
    figure_of_panels,
    hide_axes,
    name_lines,
    name_row,
    note_below,
    wrapped,
)
from harness.results.columns import Row, first
from harness.results.figures import Drawing
from harness.results.run_labels import Label, display_name, palette
from sample_info.report.tables import accuracy_of, information, trials
from sample_info.result import SCORES, SummaryCurves
from sample_info.scored_examples import Examples

_LINES = {  # colours and markers by order
    "bottom": ("#56B4E9", "o"),
    "bottom_iterative": ("#0072B2", "s"),
    "top": ("#D55E00", "^"),
    "random": ("#4d4d4d", "x"),
}
_ON_DARK, _ON_LIGHT = "#fefefe", "#010101"  # text on a coloured cell, the same in light and dark mode
_COLUMNS = 5  # of images
_TEXT_INCHES = 1.6  # length of a line at the usual font size that fits a column at size 6
_NAME_INCHES = 1.5  # width of a group's name next to its histogram


def draw_run(examples: Examples, scores: Mapping[str, Tensor], path: Path) -> Path:
    """Draw histograms of scores by group (by class without groups), and the most and least informative examples."""
    classes = {name: examples.labels.cpu() == j for j, name in enumerate(examples.dataset.class_names)}
    parts = examples.groups.masks() or classes
    heights = (2.4 * len(scores), 5.6)
    with figure_at(path, WIDTH, sum(heights), dpi=120) as figure:
        above, below = (figure.add_subfigure(part) for part in figure.add_gridspec(2, 1, height_ratios=heights))
        axes = above.subplots(len(scores), 1, squeeze=False)[:, 0]
        for ax, (name, values) in zip(axes, scores.items(), strict=True):
            _histogram(ax, values, parts)
            ax.set(xlabel=f"{SCORES[name]} (nats)", ylabel="examples")
        axes[0].set_title(title_of(examples), fontsize=10)
        _grid(below, examples, scores["f_si_nats"])
    return path


def title_of(examples: Examples) -> str:
    """Return the title of a run's figures."""
    names = [getattr(examples.experiment.config, part)["name"] for part in ("dataset", "eraser", "model")]
    return wrapped(" · ".join([*map(display_name, names), f"{len(examples.x):,} examples"]))


def _histogram(ax: Axes, values: Tensor, parts: Mapping[str, Tensor]) -> None:
    """Draw a stacked histogram on a logarithmic axis; scores of zero fall into the first bin."""
    positive = values[values > 0]
    if not len(positive):
        ax.text(0.5, 0.5, "all scores are zero", ha="center", transform=ax.transAxes)
        return
    low, high = float(positive.min()), float(positive.max())
    edges = np.geomspace(low, max(high, low * 1.001), 41).tolist()
    clipped = values.clamp(min=low)
    shown = {
        wrapped(f"{name} ({int(mask.sum())})", _NAME_INCHES): clipped[mask].numpy() for name, mask in parts.items()
    }
    colours = palette()
    if len(shown) > len(colours):
        shown = {"all": clipped.numpy()}
    ax.hist([*shown.values()], bins=edges, stacked=True, color=colours[: len(shown)], label=[*shown])
    ax.set_xscale("log")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=0.8, fontsize=9, reverse=True)  # stack's order


def _grid(figure: SubFigure, examples: Examples, scores: Tensor) -> None:
    order = scores.argsort(descending=True)
    count = min(10, len(order))
    ends = {"most informative": order[:count], "least informative": order.flip(0)[:count]}
    rows_each = math.ceil(count / _COLUMNS)
    with mpl.rc_context({"axes.grid": False}):
        axes = figure.subplots(2 * rows_each, min(count, _COLUMNS), squeeze=False)
    class_names, are_vectors = examples.dataset.class_names, examples.x[0, 0].numel() == 1
    for rows, (title, positions) in zip((axes[:rows_each], axes[rows_each:]), ends.items(), strict=True):
        for ax in rows.flat[count:]:
            ax.set_visible(False)
        for ax, position in zip(rows.flat, positions.tolist(), strict=False):
            if are_vectors:
                text = wrapped(examples.names[position], _TEXT_INCHES)
                ax.text(0.5, 0.5, text, ha="center", va="center", fontsize=6, in_layout=False)  # axes keep their size
                hide_axes(ax)
            else:
                draw_image(ax, examples.dataset.pixels(examples.stored(examples.x[[position]]).cpu())[0])
            label, true = (class_names[int(labels[position])] for labels in (examples.train_labels, examples.labels))
            label = wrapped(true if label == true else f"{label} ({true})")
            group = examples.groups.names[int(examples.groups.of[position])]
            shown = filter(None, [label, group, f"{float(scores[position]):.1e}"])
            ax.set_title("\n".join(shown), fontsize=8)
        name_row(rows[0, 0], title)


SummaryPanel = tuple[str, str, SummaryCurves]  # title, description of the accuracy (`accuracy_of`), summaries


def figures_of(
    frames: Sequence[pd.DataFrame], between_erasers: Sequence[Mapping[str, Any]], between_networks: Sequence[Row]
) -> dict[str, Drawing]:
    """Return the figures by the kinds of their tables, without those that have no panels."""
    summaries = [
        (_title(entry, "dataset", "model", "eraser"), accuracy_of(each, result.config, result.eraser_fit), each)
        for entry, result in information(frames)
        if (each := result.summaries) is not None
    ]
    groups = [[*group] for _, group in groupby(between_networks, key=lambda row: row["group"])]
    figures: dict[str, Drawing] = {
        "agreement": (draw_agreement, groups),
        "movement": (draw_movement, between_erasers),
        "summaries": (draw_summaries, summaries),
    }
    return {kind: figure for kind, figure in figures.items() if figure[1]}


def _title(row: Row, *parts: str) -> str:
    return " · ".join(first(row, part).display for part in parts)


def draw_summaries(shown: Sequence[SummaryPanel], _: Mapping[Label, str], path: Path) -> Path:
    """Draw a panel per run, with a line per order and a band of one standard deviation to either side."""
    with figure_of_panels(path, len(shown)) as (figure, axes):
        for ax, (title, _accuracy, summaries) in zip(axes, shown, strict=True):
            removed = [100 * fraction for fraction in summaries.removed]
            for order, curves in trials(summaries).items():
                line, marker = _LINES[order]
                look = {"color": line, "marker": marker, "markersize": 4, "label": order.replace("_", " ")}
                band(ax, removed, 100 * np.array(curves), **look)
            ax.set_ylim(top=min(ax.get_ylim()[1], 101))  # the band may exceed 100 %
            ax.set_title(wrapped(title, 5.0), fontsize=10)
            ax.set(xlabel="training examples removed (%)", ylabel="test accuracy (%)")
        name_lines(figure, axes)
        kinds = {accuracy for _, accuracy, _ in shown}
        each = (f"{accuracy} ({title})" if len(kinds) > 1 else accuracy for title, accuracy, _ in shown)
        note_below(figure, f"Accuracy {'; '.join(dict.fromkeys(each))}.")
    return path


def draw_movement(shown: Sequence[Mapping[str, Any]], colours: Mapping[Label, str], path: Path) -> Path:
    """Draw a panel per pair with a point per example, on logarithmic axes; scores on the diagonal have not moved."""
    with figure_of_panels(path, len(shown)) as (_, axes):
        for ax, movement in zip(axes, shown, strict=True):
            a, b = movement["first"], movement["second"]
            smallest = float(torch.cat([a[a > 0], b[b > 0], torch.tensor([1e300])]).min())
            a, b = a.clamp(min=smallest), b.clamp(min=smallest)
            line = colours[movement["to"]]
            ax.scatter(a, b, s=9, alpha=0.8, linewidths=0, color=line, rasterized=True)  # thousands of points
            ends = [float(torch.minimum(a, b).min()), float(torch.maximum(a, b).max())]
            ax.plot(ends, ends, color="#999999", linewidth=1, linestyle=(0, (4, 3)))
            rank = "" if movement["spearman"] is None else f"\nrank correlation {movement['spearman']:.2f}"
            before, after = (wrapped(movement[end].display) for end in ("from", "to"))
            title = wrapped(_title(movement, "dataset", "model")) + rank
            ax.set(title=title, xlabel=f"F-SI, {before} (nats)", ylabel=f"F-SI, {after}")
            ax.set(xscale="log", yscale="log")
    return path


def draw_agreement(shown: Sequence[Sequence[Row]], _: Mapping[Label, str], path: Path) -> Path:
    """Draw a matrix of correlations per group of runs, with the number in every cell."""
    runs = [[*dict.fromkeys(row[end] for row in group for end in ("run", "another_run"))] for group in shown]
    longest = max(len(wrapped(run.display)) for of_group in runs for run in of_group)
    width = max(5.0, 1.0 + 0.1 * longest + 0.6 * max(map(len, runs)))  # inches, with full names on the left
    high = 0.5 + 0.7 * len(shown) + 0.6 * sum(map(len, runs))
    with figure_at(path, width, high, dpi=120) as figure:
        axes = figure.subplots(len(shown), 1, squeeze=False, height_ratios=[*map(len, runs)])[:, 0]
        for ax, group, of_group in zip(axes, shown, runs, strict=True):
            matrix = np.full((len(of_group), len(of_group)), np.nan)
            for row in group:
                i, j = of_group.index(row["run"]), of_group.index(row["another_run"])
                matrix[i, j] = matrix[j, i] = row["pearson"]
            ax.imshow(matrix, cmap="RdBu_r", vmin=-1, vmax=1)
            for i, j in np.argwhere(~np.isnan(matrix)):
                colour = _ON_DARK if abs(matrix[i, j]) > 0.6 else _ON_LIGHT
                ax.text(j, i, f"{matrix[i, j]:.2f}", ha="center", va="center", fontsize=9, color=colour)
            ax.set_xticks(range(len(of_group)), [str(j + 1) for j in range(len(of_group))])
            names = [f"{wrapped(run.display)}  {i + 1}" for i, run in enumerate(of_group)]
            ax.set_yticks(range(len(of_group)), names)
            ax.grid(visible=False)
            ax.set_title(wrapped(_title(group[0], "dataset", "eraser")), fontsize=10)
        figure.suptitle("correlation of F-SI; diagonal: between seeds", fontsize=11)
    return path
