"""What a run trains with: its choice of stacking, made once, and its checkpoints."""

import logging
from collections.abc import Callable
from dataclasses import asdict

from torch import Tensor

from harness.run import Run
from train.bench import Bench
from train.checkpoint import Checkpoints
from train.fit import Fit, fit
from train.memory import keep_freed_memory
from train.stacking import STACKING, Stacking, choose
from train.training import EpochReport

log = logging.getLogger(__name__)


class Engine:
    """Trains a run's seeds; an interrupted run continues from its checkpoints, stacked as before.

    Args:
        bench: data and architecture.
        run: where the choice and the checkpoints are kept.

    Raises:
        ValueError: train.stack=all with an architecture that cannot be stacked.
    """

    def __init__(self, bench: Bench, run: Run) -> None:
        keep_freed_memory()
        self._bench = bench
        self._checkpoints = Checkpoints(run.directory, bench.settings.checkpoint_every_s, run.require_lease)
        kept = run.part(STACKING)
        if kept is not None:
            self.stacking = Stacking.read(kept)
            return
        self.stacking = choose(bench.ensemble, len(bench.seeds), bench.data["train"], bench.settings)
        run.save_part(STACKING, asdict(self.stacking))
        if len(bench.seeds) > 1:
            log.info("seeds are trained %s: %s", self.stacking.how, self.stacking.why)

    def fit(self, subsets: Tensor, report: Callable[[EpochReport], None]) -> Fit:
        """Train every seed on its subset [S, n] of the training split; see `train.fit.fit`."""
        data, settings = self._bench.data, self._bench.settings
        return fit(
            self._bench.ensemble,
            self._bench.seeds,
            subsets,
            data["train"],
            data["validation"],
            settings,
            report,
            stack=self.stacking.stack,
            checkpoints=self._checkpoints,
        )

    def finished(self, n: int) -> None:
        """The trainings of size n are no longer needed."""
        self._checkpoints.delete(f"{n}-")
