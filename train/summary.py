"""The output of `python -m train`: the comparison of final losses, and loss curves."""

from collections.abc import Iterable
from pathlib import Path

from conf import Options
from harness.result import TrainedResult
from harness.results.arrange import Comparison
from harness.results.columns import ERASER, FINALS, ROW, RUNS, SEEDS, columns, notes
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
from harness.trained import TrainedOnce, stuck


def table_of(comparison: Comparison) -> Table:
    """Compare the runs of one setting, a row each; records have every column of final losses."""
    entries = comparison.run
    shown = columns("loss gap accuracy training_loss entropy")
    also = (ROW, ERASER, RUNS, *FINALS.values())
    return Table.of(comparison.setting, (ROW, ERASER, *shown, SEEDS), entries, notes(shown, entries), also)


def draw(comparison: Comparison, path: Path) -> Path:
    """Draw validation and training loss over epochs, a panel per dataset and model, a colour per eraser."""
    colours = eraser_colours(comparison.erasers)
    with figure_at(path, *panel_size(len(comparison.rows))) as figure:
        axes = panels(figure, len(comparison.rows))
        for row, ax in zip(comparison.rows, axes, strict=True):
            results = {entry.eraser: entry.result for entry in row.run if entry.result is not None}
            for entry in row.run:
                curves, name = [*entry.curves.values()], entry.eraser.display
                width = line_width(comparison.erasers.index(entry.eraser))
                line = {"color": colours[entry.eraser], "linewidth": width}
                loss_lines(ax, curves, "validation_bits", label=f"{name}, validation", **line)
                loss_lines(ax, curves, "train_bits", label=f"{name}, {_training(entry.config)}", linestyle=":", **line)
            chance_line(ax, _label_entropy(results.values()), "label entropy")
            counts = {eraser: count for eraser, result in results.items() if (count := stuck(result.trainings))}
            marks = [f"‡ {literal(eraser.display)}: {count} seeds on the plateau" for eraser, count in counts.items()]
            title = "\n".join([wrapped(row.label.display, 4.0), *marks])
            ax.set(title=title, xlabel="epoch", ylabel="loss (bits per label)")
            epoch_axis(ax, max(max(result.trainings[-1].epochs) for result in results.values()))
        shared_legend(figure, axes)
    return path


def _label_entropy(results: Iterable[TrainedResult]) -> float:
    return next(result.label_entropy_bits for result in results if isinstance(result, TrainedOnce))


def _training(config: Options) -> str:
    """Name the training loss: vectors are not augmented, images where they are cropped or mirrored."""
    dataset, vectors = config["dataset"], "x_key" in config["dataset"]
    augmented = not vectors and (dataset.get("flip") or config["train"].get("crop_padding"))
    return "training (augmented)" if augmented else "training"
