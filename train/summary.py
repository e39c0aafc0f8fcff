"""What `python -m train` shows: final losses side by side, and loss curves."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.columns import (
    ACCURACY,
    BELOW,
    COST,
    END_LOSS,
    ENTROPY,
    EPOCHS,
    ERASER,
    FALL,
    GAP,
    GAPS,
    LOSS,
    MARKS,
    ROW,
    RUNS,
    STUCK,
    TRAINING_LOSS,
    beside_controls,
)  # fmt: skip
from harness.compare import Grid
from harness.result import TrainResult, stuck
from harness.run import CURVES, curves_of
from harness.style import STYLE, chance_line, colour, epoch_axis, shared_legend, wrapped
from harness.table import Table

if TYPE_CHECKING:  # a figure drawn before is copied without matplotlib
    from matplotlib.axes import Axes

_COLUMNS = (ROW, ERASER, LOSS, ACCURACY, TRAINING_LOSS, END_LOSS, ENTROPY, EPOCHS, GAP, BELOW, FALL, STUCK)


def table_of(grid: Grid, setting: str) -> Table:
    """A line per run of one setting."""
    entries = [entry for entry in beside_controls(grid).values() if entry.result]
    return Table.of(setting, _COLUMNS, entries, MARKS, also=(RUNS, GAPS, COST))


def draw(grid: Grid[TrainResult], runs_dir: Path, path: Path) -> Path:
    """Validation and training loss over epochs, a panel per dataset and model, a colour per eraser."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        wide = min(3, len(grid.rows))
        tall = math.ceil(len(grid.rows) / wide)
        figure = Figure(figsize=(max(6.0, 4.7 * wide), 3.7 * tall + 0.4), layout="constrained")
        axes = [figure.add_subplot(tall, wide, i + 1) for i in range(len(grid.rows))]
        for row, ax in zip(grid.rows, axes, strict=True):
            runs = {column: grid.cells[row][column] for column in grid.columns if column in grid.cells[row]}
            for column, result in runs.items():
                if curves_of(result):
                    _curves(
                        ax, runs_dir / result.run_id / CURVES, column, colour(column, grid.columns), _training(result)
                    )
            entropy = next(iter(runs.values())).label_entropy_bits
            chance_line(ax, entropy, "label entropy")
            marks = [f"‡ {c}: {count} seeds never left the plateau" for c, r in runs.items() if (count := stuck([r]))]
            ax.set(title="\n".join([wrapped(row, 4.0), *marks]), xlabel="epoch", ylabel="loss (bits per label)")
            epoch_axis(ax, max(max(result.epochs) for result in runs.values()))
        shared_legend(figure, axes)
        figure.savefig(path)
    return path


def _training(result: TrainResult) -> str:
    """What the training loss is called: vectors are not augmented, images where they are cropped or mirrored."""
    dataset, vectors = result.config["dataset"], "x_key" in result.config["dataset"]
    augmented = not vectors and (dataset.get("flip") or result.config["train"].get("crop_padding"))
    return "training (augmented)" if augmented else "training"


def _curves(ax: "Axes", path: Path, label: str, line: str, training: str) -> None:
    """Each seed a thin line; their mean, as long as all train, a thick one. Training dotted, validation solid."""
    by_seed: dict[str, list[Mapping[str, str]]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            by_seed.setdefault(row["seed"], []).append(row)
    for name, style, caption in (
        ("validation_loss_bits", "-", f"{label}, validation"),
        ("train_loss_bits", ":", f"{label}, {training}"),
    ):
        curves = [_points(rows, name) for rows in by_seed.values()]
        for epochs, losses in curves:
            ax.plot(epochs, losses, style, color=line, linewidth=0.7, alpha=0.45 if len(curves) > 1 else 0)
        shortest = min(len(epochs) for epochs, _ in curves)
        mean = np.mean([losses[:shortest] for _, losses in curves], axis=0)
        ax.plot(curves[0][0][:shortest], mean, style, color=line, linewidth=1.9, label=caption)


def _points(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[list[int], list[float]]:
    kept = [row for row in rows if row[name]]
    return [int(row["epoch"]) for row in kept], [float(row[name]) for row in kept]
