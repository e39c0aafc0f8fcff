"""The output of `python -m train`: the comparison of final losses, and loss curves."""

from pathlib import Path

from harness.result import TrainResult
from harness.results.arrange import Grid
from harness.results.cell import Cell, Found
from harness.results.columns import ERASER, FINALS, ROW, RUNS, SEEDS, columns, notes
from harness.results.comparison import beside_controls
from harness.results.labels import spelled
from harness.results.panels import loss_lines, panel_size, panels
from harness.results.table import Table
from harness.style import chance_line, colour, epoch_axis, figure_at, line_width, literal, shared_legend, wrapped
from harness.trained import stuck


def table_of(grid: Grid, setting: str) -> Table:
    """Compare the runs of one setting, a row each; records have every column of final losses."""
    entries = [entry for entry in beside_controls(grid).values() if entry.result]
    shown = columns("loss gap accuracy training_loss entropy")
    also = (ROW, ERASER, RUNS, *FINALS.values())
    return Table.of(setting, (ROW, ERASER, *shown, SEEDS), entries, notes(shown, entries), also)


def draw(grid: Grid[TrainResult], path: Path) -> Path:
    """Validation and training loss over epochs, a panel per dataset and model, a colour per eraser."""
    with figure_at(path, *panel_size(len(grid.rows))) as figure:
        axes = panels(figure, len(grid.rows))
        for row, ax in zip(grid.rows, axes, strict=True):
            runs = {column: grid.cells[row][column] for column in grid.columns if column in grid.cells[row]}
            for column, result in runs.items():
                curves, line = [*Cell([Found.finished(result)]).curves.values()], colour(column, grid.columns)
                width = line_width(column, grid.columns)
                loss_lines(ax, curves, "validation_bits", line, width, f"{column}, validation", "-")
                loss_lines(ax, curves, "train_bits", line, width, f"{column}, {_training(result)}", ":")
            chance_line(ax, next(iter(runs.values())).label_entropy_bits, "label entropy")
            counts = {literal(spelled(column)): count for column, run in runs.items() if (count := stuck([run]))}
            marks = [f"‡ {eraser}: {count} seeds on the plateau" for eraser, count in counts.items()]
            ax.set(title="\n".join([wrapped(row, 4.0), *marks]), xlabel="epoch", ylabel="loss (bits per label)")
            epoch_axis(ax, max(max(result.epochs) for result in runs.values()))
        shared_legend(figure, axes)
    return path


def _training(result: TrainResult) -> str:
    """What the training loss is called: vectors are not augmented, images where they are cropped or mirrored."""
    dataset, vectors = result.config["dataset"], "x_key" in result.config["dataset"]
    augmented = not vectors and (dataset.get("flip") or result.config["train"].get("crop_padding"))
    return "training (augmented)" if augmented else "training"
