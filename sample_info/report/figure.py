"""What scores look like: their histogram by group or class, and the images at both ends."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from torch import Tensor

from harness.style import STYLE
from sample_info.problem import Examples

NAMES = {"f_si_nats": "F-SI", "si_nats": "SI", "si_sgd_nats": "SI, SGD"}
_ENDS = 10  # images shown at either end
_PALETTE = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#8C564B",
    "#4d4d4d",
    "#17BECF",
    "#6A3D9A",
)


def draw_run(examples: Examples, scores: Mapping[str, Tensor], path: Path) -> Path:
    """Histograms of F-SI and SI by group, or else by class; the ten most and ten least informative images by F-SI."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 7.2), layout="constrained")
        above, below = (figure.add_subfigure(part) for part in figure.add_gridspec(2, 1, height_ratios=(1, 1.05)))
        axes = above.subplots(1, len(scores), squeeze=False)[0]
        for ax, (name, values) in zip(axes, scores.items(), strict=True):
            _histogram(ax, values, _parts(examples))
            ax.set(xlabel=f"{NAMES[name]} (nats)", ylabel="examples")
        axes[0].legend(fontsize=9)
        figure.suptitle(title_of(examples))
        _grid(below, examples, scores["f_si_nats"])
        figure.savefig(path, dpi=120)
    return path


def title_of(examples: Examples) -> str:
    """What a run's figures are about."""
    names = [examples.job.config[part]["name"] for part in ("dataset", "eraser", "model")]
    return " · ".join([*names, f"{len(examples.x):,} examples"])


def _parts(examples: Examples) -> Mapping[str, Tensor]:
    """Masks of what histograms tell apart: groups if there are any, else classes."""
    if examples.groups is not None:
        return examples.groups.masks()
    labels = examples.labels.cpu()
    return {name: labels == j for j, name in enumerate(examples.dataset.class_names)}


def _histogram(ax: Axes, values: Tensor, parts: Mapping[str, Tensor]) -> None:
    """Stacked on a logarithmic axis; scores of zero fall into the first bin."""
    positive = values[values > 0]
    if not len(positive):
        ax.text(0.5, 0.5, "all scores are zero", ha="center", transform=ax.transAxes)
        return
    low, high = float(positive.min()), float(positive.max())
    edges = np.geomspace(low, max(high, low * 1.001), 41).tolist()
    clipped = values.clamp(min=low)
    if len(parts) > len(_PALETTE):
        ax.hist(clipped.numpy(), bins=edges, color=_PALETTE[0], label="all")
    else:
        shown = [clipped[mask].numpy() for mask in parts.values()]
        labels = [f"{name} ({len(own)})" for name, own in zip(parts, shown, strict=True)]
        ax.hist(shown, bins=edges, stacked=True, color=_PALETTE[: len(parts)], label=labels)
    ax.set_xscale("log")


def _grid(figure: SubFigure, examples: Examples, scores: Tensor) -> None:
    order = scores.argsort(descending=True)
    count = min(_ENDS, len(order))
    rows = {"most informative": order[:count], "least informative": order.flip(0)[:count]}
    axes = figure.subplots(2, count, squeeze=False)
    stored = examples.stored(examples.x).cpu()
    for row, (title, positions) in zip(axes, rows.items(), strict=True):
        images = examples.dataset.pixels(stored[positions])
        for ax, image, position in zip(row, images, positions.tolist(), strict=True):
            ax.imshow(_drawn(image), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            given, true = (int(labels[position]) for labels in (examples.given, examples.labels))
            class_names = examples.dataset.class_names
            label = class_names[true] if given == true else f"{class_names[given]} ({class_names[true]})"
            if examples.groups is not None:
                label += f"\n{examples.groups.names[int(examples.groups.of[position])]}"
            ax.set_title(f"{label}\n{float(scores[position]):.1e}", fontsize=8)
            ax.set_xticks([])
            ax.set_yticks([])
            ax.spines[:].set_visible(False)
            ax.grid(visible=False)
        row[0].set_ylabel(title, fontsize=9)


def _drawn(image: Tensor) -> np.ndarray:
    """[C, H, W] to grey levels [H, W] or colours [H, W, 3] in 0..1."""
    image = image.to(torch.float32).clamp(0, 1)
    return (image.permute(1, 2, 0) if len(image) == 3 else image.mean(0)).numpy()
