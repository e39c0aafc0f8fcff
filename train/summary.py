"""The output of `python -m train`: the comparison of final losses, and loss curves."""

from pathlib import Path

from conf import Options
from harness.results.arrange import Comparison
from harness.results.columns import FINALS, sweep_table
from harness.results.panels import loss_lines, panel_size, panels
from harness.results.table import Table
from harness.style import (
    chance_line,
    epoch_axis,
    eraser_colours,
    figure_at,
    line_width,
    literal,
    shared_legend,
    wrapped,
)


def table_of(comparison: Comparison) -> Table:
    """Compare the runs of one setting; CSV has every column of final losses."""
    return sweep_table(comparison, "loss gap accuracy training_loss entropy", FINALS.values())


def draw(comparison: Comparison, path: Path) -> Path:
    """Draw validation and training loss over epochs, a panel per dataset and model, a colour per eraser."""
    colours = eraser_colours(comparison.erasers)
    with figure_at(path, *panel_size(len(comparison.rows))) as figure:
        axes = panels(figure, len(comparison.rows))
        for (label, row), ax in zip(comparison.rows.items(), axes, strict=True):
            entries = [entry for entry in row if entry["runs"]]
            marks = []
            for entry in entries:
                curves, name, eraser = [*entry["curves"].values()], entry["eraser"].display, entry["eraser"]
                training = _training(entry["runs"][0].config)
                line = {"color": colours[eraser], "linewidth": line_width(comparison.erasers.index(eraser))}
                loss_lines(ax, curves, "validation_bits", label=f"{name}, validation", **line)
                loss_lines(ax, curves, "train_bits", label=f"{name}, {training}", linestyle=":", **line)
                if count := entry["loss_bits_on_plateau"]:
                    marks.append(f"‡ {literal(name)}: {count} seeds on the plateau")
            chance_line(ax, entries[0]["label_entropy_bits"], "label entropy")
            title = "\n".join([wrapped(label.display, 4.0), *marks])
            ax.set(title=title, xlabel="epoch", ylabel="loss (bits per label)")
            epoch_axis(ax, max(max(run.result.epochs) for entry in entries for run in entry["runs"]))
        shared_legend(figure, axes)
    return path


def _training(config: Options) -> str:
    """Name the training loss: vectors are not augmented, images where they are cropped or mirrored."""
    dataset, vectors = config["dataset"], "x_key" in config["dataset"]
    augmented = not vectors and (dataset.get("flip") or config["train"].get("crop_padding"))
    return "training (augmented)" if augmented else "training"
