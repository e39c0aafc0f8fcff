"""The runs of one row of a table under one eraser as one result, whatever directories and seeds they are of."""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from conf import Options
from harness.example_bits import CodedBits, read_coded_bits, read_test_bits
from harness.loss_curves import LossCurve, read_loss_curves, sharp_drops
from harness.result import Result, TrainedResult, of_seeds
from harness.results.statistics import Array
from harness.run import whole_curves

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """One run's directory and what it holds: a result, or the configuration of a run that has none.

    Attributes:
        state: "finished", "running", "failed", "interrupted"; "unfinished" where it does not say.
        remarks: what is odd about it, a line each.
    """

    id: str
    directory: Path
    config: Options
    verb: str
    seeds: Sequence[int]
    result: Result | None
    state: str = "finished"
    remarks: Sequence[str] = ()

    @classmethod
    def finished(cls, result: Result, directory: Path | None = None, remarks: Sequence[str] = ()) -> "Found":
        """A result, and where it is: by itself, where it was written."""
        about = (result.config, result.verb, result.seeds, result)
        return cls(result.run_id, directory or result.directory, *about, remarks=remarks)


@dataclass
class Cell:
    """The runs of one row under one eraser. Those of different seeds are one, and no seed counts twice.

    Attributes:
        runs: that have finished, each with a seed that the others lack.
        unfinished: others.
        note: told of files that are damaged, once each.
    """

    runs: list[Found] = field(default_factory=list)
    unfinished: list[Found] = field(default_factory=list)
    note: Callable[[str], object] = log.warning
    _damaged: set[str] = field(default_factory=set)

    @property
    def every(self) -> list[Found]:
        return [*self.runs, *self.unfinished]

    @property
    def config(self) -> Options:
        """Of the first run; there has to be one."""
        return self.every[0].config

    @cached_property
    def result(self) -> TrainedResult | None:
        """All seeds' results as one; None while nothing has finished."""
        results = [run.result for run in self.runs if isinstance(run.result, TrainedResult)]
        if not results:
            return None
        seeds = sorted({seed for result in results for seed in result.seeds})
        merged = of_seeds(results, seeds) if len(results) > 1 else results[0]
        if merged.sharp_drop is not None or set(self.curves) != set(merged.seeds):
            return merged
        ordered = [self.curves[seed] for seed in merged.seeds]  # an earlier version left the drop out
        return replace(merged, sharp_drop=sharp_drops((c.epochs, c.validation_bits) for c in ordered))

    @cached_property
    def curves(self) -> dict[int, LossCurve]:
        """Loss curves of the whole dataset by seed, as far as there are any."""
        found: dict[int, LossCurve] = {}
        for run in self.runs:
            try:
                path = whole_curves(run.directory, run.result)
                curves = {} if path is None else read_loss_curves(path)
                if not curves.keys() <= {*run.seeds}:
                    raise ValueError(f"{path} is of other seeds")
                found |= {seed: curve for seed, curve in curves.items() if seed not in found}
            except (OSError, ValueError) as error:
                self.note(f"{run.directory}: no loss curves: {error}")
        return found

    def test_bits(self) -> dict[int, Array]:
        """Losses of the test examples by seed, read again each time; none of a run whose file is damaged."""
        return read_test_bits((run.directory for run in self.runs), self._noted("no error over test examples"))

    def coded_bits(self) -> CodedBits | None:
        """What single labels cost, in runs whose files are whole; None where it is not known."""
        return read_coded_bits((run.directory for run in self.runs), self._noted("nothing on single labels"))

    def _noted(self, lacking: str) -> Callable[[str], None]:
        """Take lines on damaged files, each once."""

        def note(line: str) -> None:
            if line not in self._damaged:
                self.note(f"{line}: {lacking}")
            self._damaged.add(line)

        return note

    def lacks(self, seeds: Collection[int]) -> str:
        """What makes it incomplete beside a row of these seeds; empty where nothing does."""
        if self.result is None:
            return self.unfinished[0].state if self.unfinished else "not run"
        missing = set(seeds) - set(self.result.seeds)
        return f"{len(self.result.seeds)} of {len(seeds)} seeds" if missing else ""
