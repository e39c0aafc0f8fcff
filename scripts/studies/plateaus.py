"""How long networks stay where they cannot be told from ones that learn nothing, in optimiser steps.

    python -m train -m +experiment=plateaus
    python -m scripts.studies.plateaus runs/

From the curves of finished runs, per training size: until the training loss leaves the plateau; the longest wait
between two improvements of the validation loss, none of which `train.patience_steps` may cut short; and what was
trained. A figure per seed; a dash for a seed that never left, or never improved.
"""

import argparse
import csv
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from erasure.progress import console
from harness.result import Point, TrainedResult
from scripts.report.read import read_runs
from train.order import epoch_steps
from train.settings import TrainSettings

Curves = Mapping[tuple[int, int], Sequence[tuple[int, float]]]  # of (n, seed): epochs and validation losses


def longest_wait(curve: Sequence[tuple[int, float]], worth_bits: float) -> int:
    """The most epochs between two improvements by more than `worth_bits`; 0 without any."""
    improved, to_beat = [curve[0][0]], curve[0][1]
    for epoch, bits in curve:
        if bits < to_beat - worth_bits:
            improved.append(epoch)
            to_beat = bits
    return max((after - before for before, after in itertools.pairwise(improved)), default=0)


def read_curves(path: Path) -> Curves:
    """Every curve of a run's curves.csv."""
    curves: dict[tuple[int, int], list[tuple[int, float]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            point = int(row["epoch"]), float(row["validation_loss_bits"])
            curves.setdefault((int(row["n"]), int(row["seed"])), []).append(point)
    return curves


def plateaus(result: TrainedResult, curves: Curves) -> list[tuple[int, list[int | None], list[int], list[int]]]:
    """Per training size n: steps on the plateau (None: to the end), of the longest wait and in all, each [S]."""
    settings = TrainSettings(**result.config["train"])
    lines = []
    for point in result.trainings:
        n = point.n if isinstance(point, Point) else result.train_size
        steps = epoch_steps(n, settings)
        waits = [longest_wait(curves[n, seed], settings.min_improvement_bits) for seed in result.seeds]
        left = [None if epochs is None else epochs * steps for epochs in point.plateau_epochs or ()]
        lines.append((n, left, [wait * steps for wait in waits], [epochs * steps for epochs in point.epochs]))
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m scripts.studies.plateaus", description=__doc__, formatter_class=formatter
    )
    parser.add_argument("roots", type=Path, nargs="+", help="folders of runs of python -m train and python -m mdl")
    table = Table("dataset", "model", "eraser", "n", "plateau", "longest wait", "trained", box=box.SIMPLE_HEAD)
    for run in read_runs(parser.parse_args(arguments).roots).finished:
        if not isinstance(run.result, TrainedResult):
            continue
        names = [run.config[section]["name"] for section in ("dataset", "model", "eraser")]
        for n, *columns in plateaus(run.result, read_curves(run.directory / "curves.csv")):
            cells = [" ".join("–" if steps is None else f"{steps:,}" for steps in column) for column in columns]
            table.add_row(*names, f"{n:,}", *cells)
    console(min_width=160).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
