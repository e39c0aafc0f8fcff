"""An entry of a table: the runs of one row under one eraser, and how they compare with the row's control."""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf import Options
from harness.example_bits import CodedBits, read_coded_bits
from harness.loss_curves import LossCurve, read_loss_curves
from harness.result import Result, TrainedResult, of_seeds
from harness.results.labels import Label
from harness.results.statistics import Difference
from harness.run import whole_curves
from harness.trained import stuck

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredRun:
    """A run's directory and what it holds: a result, or the configuration of a run that has none.

    Attributes:
        id: name of the run.
        directory: where it is.
        config: its configuration.
        command: its command.
        seeds: its seeds.
        result: None while it has not finished.
        state: "finished", "running", "failed", "interrupted"; "unfinished" where it does not say.
        remarks: a line on each oddity.
    """

    id: str
    directory: Path
    config: Options
    command: str
    seeds: Sequence[int]
    result: Result | None
    state: str = "finished"
    remarks: Sequence[str] = ()

    @classmethod
    def finished(cls, result: Result, directory: Path | None = None, remarks: Sequence[str] = ()) -> "StoredRun":
        """Return a finished run; `directory` is where its result was written unless it has moved."""
        place = directory or result.directory
        return cls(result.run_id, place, result.config, result.command, result.seeds, result, remarks=remarks)


@dataclass
class Entry:
    """The runs of one row under one eraser, compared with the row's control.

    Runs of different seeds count as one, and no seed counts twice.

    Attributes:
        row: label of what the runs share with the control.
        eraser: label of the eraser.
        runs: finished runs, each with a seed that the others lack.
        unfinished: the others.
        note: called with a line on each damaged file.
        frame: a row per seed, with the columns of `harness.results.frames.RUNS`; None while nothing has finished.
        missing: what is missing beside the rest of the row: "not run", a state, or "2 of 5 seeds"; empty if nothing.
        is_control: whether the row's other entries are compared with this one.
        code_difference: of the codelength, from the control's; None for the control, and where no seed is shared.
        published_difference: the same in the unit of Table 16.
        loss_difference: the same of the final loss on the test split.
        crossing_size: training examples from which the mean test loss stays below the control's; None if it ends
            above, or if only one size was trained.
        crossing_epoch: of the training on the whole dataset, from which the mean validation loss stays below the
            control's (`harness.loss_curves.crossing_epoch`); None if it ends above, or without curves.
        loss_error: standard error of the final loss over test examples.
        control_bits: the control's final losses, by seed; None where it lacks one of these seeds.
    """

    row: Label
    eraser: Label
    runs: list[StoredRun] = field(default_factory=list)
    unfinished: list[StoredRun] = field(default_factory=list)
    note: Callable[[str], object] = log.warning
    frame: "pd.DataFrame | None" = None
    missing: str = ""
    is_control: bool = False
    code_difference: Difference | None = None
    published_difference: Difference | None = None
    loss_difference: Difference | None = None
    crossing_size: int | None = None
    crossing_epoch: int | None = None
    loss_error: float | None = None
    control_bits: list[float] | None = None

    @property
    def all_runs(self) -> list[StoredRun]:
        return [*self.runs, *self.unfinished]

    @property
    def config(self) -> Options:
        """Configuration of the first run; there has to be one."""
        return self.all_runs[0].config

    @property
    def run_ids(self) -> list[str]:
        return [run.id for run in self.runs]

    @cached_property
    def result(self) -> TrainedResult | None:
        """Results of all seeds as one; None while nothing has finished."""
        results = [run.result for run in self.runs if isinstance(run.result, TrainedResult)]
        seeds = sorted({seed for result in results for seed in result.seeds})
        return of_seeds(results, seeds) if len(results) > 1 else next(iter(results), None)

    def values(self, column: str) -> list[Any]:
        """Return what the seeds have in a column of the frame; nothing of a seed that lacks it."""
        return [] if self.frame is None or column not in self.frame else self.frame[column].dropna().tolist()

    @cached_property
    def curves(self) -> dict[int, LossCurve]:
        """Loss curves of the whole dataset by seed, as far as there are any."""
        curves: dict[int, LossCurve] = {}
        for run in self.runs:
            try:
                path = whole_curves(run.directory, run.result)
                of_run = {} if path is None else read_loss_curves(path)
                if not of_run.keys() <= {*run.seeds}:
                    raise ValueError(f"{path} is of other seeds")
                curves |= {seed: curve for seed, curve in of_run.items() if seed not in curves}
            except (OSError, ValueError) as error:
                self.note(f"{run.directory}: no loss curves: {error}")
        return curves

    def coded_bits(self) -> CodedBits | None:
        """Read what single labels cost in runs whose files are whole; None where it is not known."""
        directories = (run.directory for run in self.runs)
        return read_coded_bits(directories, lambda line: self.note(f"{line}: nothing on single labels"))

    def missing_of(self, seeds: Collection[int]) -> str:
        """Say what is missing of a row's seeds; empty if nothing."""
        if self.result is None:
            return self.unfinished[0].state if self.unfinished else "not run"
        missing = set(seeds) - set(self.result.seeds)
        return f"{len(self.result.seeds)} of {len(seeds)} seeds" if missing else ""

    @property
    def sound(self) -> bool:
        """Whether the codelength has every seed, and rests on no training that never left the plateau."""
        return self.result is not None and not self.missing and not stuck(self.result.coding)
