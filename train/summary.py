"""What `python -m train` shows: final losses side by side, and loss curves."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.table import Table

from erasure.progress import console
from erasure.store.storage import write_text
from harness.compare import DIFFERENCES, PLATEAU, PLATEAU_CAPTION, Difference, Grid, Spread, differences
from harness.example_bits import final_difference
from harness.loss_curves import DROP_WINDOW_EPOCHS, crossing_epoch
from harness.result import stuck
from harness.run import CURVES, curves_of
from harness.style import STYLE, chance_line, colour, epoch_axis, shared_legend, wrapped

if TYPE_CHECKING:  # a figure drawn before is copied without matplotlib
    from matplotlib.axes import Axes

_COLUMNS = {
    "test loss": "loss_bits",
    "accuracy": "accuracy",
    "training loss": "train_loss_bits",
    "at the end": "end_train_loss_bits",
}
_CAPTION = (
    "losses in bits per label, mean ± standard deviation over seeds; training loss on the images without "
    "augmentation, at the lowest validation loss and at the end of training. "
    "entropy: of the training labels, the best that a constant predictor can do. "
    "below control: the epoch from which the best validation loss so far stays below the control's; "
    f"sharpest fall: of the validation loss within {DROP_WINDOW_EPOCHS} epochs, mean over seeds, and when it began; "
    f"Δ: of the test loss. {DIFFERENCES} {PLATEAU_CAPTION}"
)


_HEADINGS = (
    "dataset · model",
    "eraser",
    *_COLUMNS,
    "entropy",
    "epochs",
    "Δ to control",
    "below control",
    "sharpest fall",
    PLATEAU,
)


def print_table(grid: Grid, setting: str) -> None:
    """One line per run of one setting on stdout."""
    table = Table(box=box.SIMPLE_HEAD, title=setting, title_justify="left")
    for heading in _HEADINGS:
        table.add_column(heading)
    for cells in _lines(grid):
        table.add_row(*cells)
    output = console(min_width=180)
    output.print(table)
    output.print(_CAPTION, style="dim", highlight=False)


def write_tables(grids: Mapping[str, Grid], path: Path) -> Path:
    """The same as Markdown; `grids` by setting."""
    lines = []
    for setting, grid in grids.items():
        rows = [_HEADINGS, ["---"] * len(_HEADINGS), *_lines(grid)]
        lines += [f"## {setting}", "", *(f"| {' | '.join(row)} |" for row in rows), ""]
    write_text(path, "\n".join([*lines, _CAPTION, ""]))
    return path


def _lines(grid: Grid) -> list[list[str]]:
    lines, found = [], differences(grid, {"loss": final_difference})
    for row, column, result in grid.runs():
        cells = []
        for name in _COLUMNS.values():
            spread = Spread.of(result["final"][name])
            cells.append(f"{100 * spread.mean:.1f} %" if name == "accuracy" else f"{spread:.4f}")
        cells[0] += "‡" if stuck([result]) else ""
        epochs = result["epochs"]
        span = f"{min(epochs)}" if min(epochs) == max(epochs) else f"{min(epochs)}–{max(epochs)}"
        lines.append([row, column, *cells, f"{result['label_entropy_bits']:.4f}", span])
        lines[-1] += [*_against_control(result, grid.control(row), found.get((row, column, "loss"))), stuck([result])]
    return lines


def _against_control(result: Any, control: Any, gap: Difference | None) -> list[str]:
    """Difference of the final loss, crossing epoch and sharpest fall."""
    if control is None or gap is None:
        return ["", "", f"{result.sharp_drop or ''}"]
    curves, control_curves = curves_of(result), curves_of(control)
    where = ""
    if curves and control_curves:
        epoch = crossing_epoch([*curves.values()], [*control_curves.values()])
        where = "no" if epoch is None else f"from epoch {epoch}"
        where += ", backfires" if gap.below else ""
    return [f"{gap}", where, f"{result.sharp_drop or ''}"]


def draw(grid: Grid, runs_dir: Path, path: Path) -> Path:
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
            entropy = next(iter(runs.values()))["label_entropy_bits"]
            chance_line(ax, entropy, "label entropy")
            marks = [f"‡ {c}: {count} seeds never left the plateau" for c, r in runs.items() if (count := stuck([r]))]
            ax.set(title="\n".join([wrapped(row, 4.0), *marks]), xlabel="epoch", ylabel="loss (bits per label)")
            epoch_axis(ax, max(max(result["epochs"]) for result in runs.values()))
        shared_legend(figure, axes)
        figure.savefig(path)
    return path


def _training(result: Any) -> str:
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
