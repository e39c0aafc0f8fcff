"""Plateaus: optimiser steps for which networks cannot be told from ones that learn nothing.

    python -m mdl -m +experiment=digits_all
    python -m scripts.studies.plateaus runs/

From the curves of finished runs, per training size: until the training loss leaves the plateau; the longest wait
between two improvements of the validation loss, none of which `train.patience_steps` may cut short; and what was
trained. A figure per seed; a dash for a seed that never left, or never improved.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from harness.loss_curves import read_every_curve
from harness.result import TrainedResult
from harness.results.read import StoredRun, read_runs
from harness.results.table import Table
from harness.trained import Point
from scripts.options import parser
from train.order import epoch_steps
from train.settings import TrainSettings


def longest_wait(curve: Iterable[tuple[float, float]], worth_bits: float) -> int:
    """Return the most epochs between two improvements by more than `worth_bits`, of (epoch, loss); 0 without any."""
    (start, to_beat), *later = curve
    improved = [start]
    for epoch, bits in later:
        if bits < to_beat - worth_bits:
            improved.append(epoch)
            to_beat = bits
    return int(max((after - before for before, after in itertools.pairwise(improved)), default=0))


def rows(run: StoredRun, result: TrainedResult) -> Iterator[list[str]]:
    """Tabulate every training size: steps on the plateau (a dash: to the end), of the longest wait and in all."""
    names = [run.config[section]["name"] for section in ("dataset", "model", "eraser")]
    settings, curves = TrainSettings(**run.config["train"]), read_every_curve(run.directory / "curves.csv")
    for point in result.trainings:
        n = point.n if isinstance(point, Point) else result.train_size
        own = [curves[n, seed] for seed in run.seeds]
        waits = [
            longest_wait(zip(c.epochs, c.validation_bits, strict=True), settings.min_improvement_bits) for c in own
        ]
        steps = epoch_steps(n, settings)
        columns = point.plateau_epochs or (), waits, point.epochs
        cells = [" ".join("–" if e is None else f"{e * steps:,}" for e in column) for column in columns]
        yield [*names, f"{n:,}", *cells]


def main(arguments: Sequence[str] | None = None) -> int:
    own = parser("studies.plateaus", __doc__)
    own.add_argument("roots", type=Path, nargs="+", help="folders of runs of python -m train and python -m mdl")
    runs = read_runs(own.parse_args(arguments).roots).finished
    waited = [run for run in runs if (run.directory / "curves.csv").exists()]  # not in a replay code
    lines = [row for run in waited if isinstance(run.result, TrainedResult) for row in rows(run, run.result)]
    headings = ("dataset", "model", "eraser", "n", "plateau", "longest wait", "trained")
    Table("plateaus", "", headings, lines).show()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
