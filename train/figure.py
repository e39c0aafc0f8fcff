"""The figure of `python -m train`: loss curves."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from conf import Options
from harness.figures import (
    chance_line,
    epoch_axis,
    eraser_colours,
    figure_at,
    line_width,
    literal,
    shared_legend,
    wrapped,
)
from harness.results.arrange import Comparison
from harness.results.panels import loss_lines, panel_size, panels


def draw(comparison: Comparison, path: Path, *, training: bool = True) -> Path:
    """Draw validation loss over epochs, and training loss if asked for, to `path`: a panel per row."""
    with figure_at(path, *panel_size(len(comparison.rows))) as figure:
        axes = panels(figure, len(comparison.rows))
        _draw_losses(axes, comparison, training=training)
        shared_legend(figure, axes)
    return path


def _draw_losses(axes: Sequence[Axes], comparison: Comparison, *, training: bool) -> None:
    erasers, colours = comparison.erasers, eraser_colours(comparison.erasers)
    for (label, entries), ax in zip(comparison.rows.items(), axes, strict=True):
        finished, marks = [entry for entry in entries if entry["runs"]], []
        for entry in finished:
            curves, name, missing = [*entry["curves"].values()], entry["eraser"].display, entry["incomplete"]
            style = {"color": colours[entry["eraser"]], "linewidth": line_width(erasers.index(entry["eraser"]))}
            text = f"{name} ({missing})" if missing else name
            validation = f"{text}, validation" if training else text
            loss_lines(ax, curves, "validation_bits", label=validation, linestyle="--" if missing else "-", **style)
            if training:
                text = f"{name}, {_training(entry['runs'][0].config)}"
                loss_lines(ax, curves, "train_bits", label=text, linestyle=":", **style)
            if count := entry["loss_bits_on_plateau"]:
                marks.append(f"‡ {literal(name)}: {count} seeds on the plateau")
        if (entropy := finished[0]["label_entropy_bits"]) is None:
            chance_line(ax, math.log2(finished[0]["num_classes"]), "uniform code")
        else:
            chance_line(ax, entropy, "label entropy")
        ax.set_title("\n".join([wrapped(label.display, 4.0), *marks]))
        ax.set(xlabel="epoch", ylabel=f"{'' if training else 'validation '}loss (bits per label)")
        epoch_axis(ax, max(one.trainings[-1].epochs[s] for entry in finished for one, s in entry["members"].values()))


def _training(config: Options) -> str:
    """Name the training loss: vectors are not augmented, images where they are cropped or mirrored."""
    dataset, vectors = config["dataset"], "x_key" in config["dataset"]
    augmented = not vectors and (dataset.get("flip") or config["train"].get("crop_padding"))
    return "training (augmented)" if augmented else "training"
