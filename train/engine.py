"""Train all members of an ensemble, in one stack or in stacks one after another, and continue interrupted runs."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.run import Run
from train.calibration import tempered
from train.checkpoint import Checkpoints, R, in_stacks
from train.counterparts import CounterpartRow, Counterparts
from train.data import DeviceImages
from train.early_stopping import MemberCurve
from train.ensemble import Ensemble, Scores, Weights
from train.memory import keep_freed_memory
from train.prepare import PreparedTraining
from train.randomness import permutation
from train.settings import TrainSettings
from train.stacking import choose
from train.training import Training, TrainingSets

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EpochReport:
    """The state of a training after an evaluation.

    Attributes:
        epoch: epochs finished.
        validation_bits: latest validation loss of each member that was still training.
        epochs_left: that these members have at least; 0 once all have stopped.
        members: members at the start, trained at the same time.
        stack: number of this stack of members, from 0, and how many stacks there are.
        epochs_elsewhere: epochs that the other stacks have finished, together.
    """

    epoch: int
    validation_bits: Sequence[float]
    epochs_left: int
    members: int
    stack: tuple[int, int]
    epochs_elsewhere: int

    @property
    def mean_epochs(self) -> tuple[float, float]:
        """Epochs finished and those left at least, averaged over all stacks; later ones last as long as these."""
        i, stacks = self.stack
        done = self.epochs_elsewhere + self.epoch
        at_the_end = (done + self.epochs_left) * stacks / (i + 1)
        return done / stacks, (at_the_end - done) / stacks

    def __str__(self) -> str:
        going = len(self.validation_bits)
        i, stacks = self.stack
        which = f"seed {i + 1} of {stacks}" if stacks > 1 else f"{going} of {self.members} seeds training"
        losses = [f"{bits:.3f}" for bits in self.validation_bits]
        shown = " ".join(losses) if going <= 5 else f"{min(losses)} to {max(losses)}"
        return f"epoch {self.epoch}: validation {shown} bits, {which}"


Report = Callable[[EpochReport], None]


@dataclass(frozen=True)
class Fit:
    """Trained members, in the order of the seeds.

    Attributes:
        ensemble: their architecture.
        best: averaged weights [S, ...] at each member's lowest validation loss.
        last: averaged weights [S, ...] when each member stopped.
        curves: losses over the epochs.
        stack: members that run at once.
        counterparts: losses on counterparts along the trainings.
    """

    ensemble: Ensemble
    best: Weights
    last: Weights
    curves: Sequence[MemberCurve]
    stack: int
    counterparts: Sequence[CounterpartRow] = ()

    @classmethod
    def of(cls, ensemble: Ensemble, trainings: Sequence[Training], stack: int) -> "Fit":
        """Join the trainings of `stack` members each."""
        best, last = (
            {name: torch.cat([getattr(training, kind)[name] for training in trainings]) for name in ensemble.names}
            for kind in ("best", "last")
        )
        curves = [stopping.curve for training in trainings for stopping in training.stopping]
        firsts = range(0, len(curves), stack)
        rows = [row for first, one in zip(firsts, trainings, strict=True) for row in one.followed.of_seeds(first)]
        return cls(ensemble, best, last, curves, stack, rows)

    def score(
        self,
        images: DeviceImages,
        index: Tensor | None = None,
        *,
        weights: Weights | None = None,
        temperatures: Tensor | None = None,
    ) -> Scores:
        """Score as `Ensemble.score`, any number of members of any architecture; the best weights by default."""
        scored = [
            self.ensemble.score(own, images, part, nats=tempered(None if temperatures is None else temperatures[here]))
            for here, own, part in self._stacks(weights or self.best, index)
        ]
        return Scores(*map(torch.cat, zip(*scored, strict=True)))

    def temperatures(self, images: DeviceImages, index: Tensor | None = None) -> Tensor:
        """Fit temperatures as `Ensemble.temperatures`, of the best weights."""
        found = (self.ensemble.temperatures(own, images, part) for _, own, part in self._stacks(self.best, index))
        return torch.cat(list(found))

    def _stacks(self, weights: Weights, index: Tensor | None) -> Iterator[tuple[slice, Weights, Tensor | None]]:
        for first in range(0, len(self.curves), self.stack):
            here = slice(first, first + self.stack)
            own = {name: weight[here] for name, weight in weights.items()}
            yield here, own, index if index is None or index.ndim == 1 else index[here]


def fit(
    ensemble: Ensemble,
    sets: TrainingSets,
    settings: TrainSettings,
    report: Report = lambda _: None,
    *,
    stack: int | None = None,
    checkpoints: Checkpoints | None = None,
) -> Fit:
    """Train one member per seed, each on its own subset of the training split, until it stops improving.

    All chance is drawn from generators of a member's seed and subset size: it computes what it would compute alone.

    Args:
        ensemble: the architecture.
        sets: members and their data.
        settings: how to train.
        report: called after every evaluation.
        stack: members in one network; all that can be by default.
        checkpoints: where unfinished trainings are saved and found again; signals then wait for the save.

    Raises:
        NonFiniteLossError, MemoryExhaustedError: name the size, seed, epoch and learning rate; the setting to lower.
    """
    count = len(sets.seeds)
    stack = (count if ensemble.model.stackable else 1) if stack is None else stack
    stacks = -(-count // stack)
    elsewhere: list[int] = []  # epochs of the stacks before

    def begin(here: slice) -> Training:
        return Training(ensemble, sets.of(here), settings)

    def finish(training: Training) -> None:
        about = len(training.seeds), (len(elsewhere), stacks), sum(elsewhere)
        for validation_bits in training.run():
            report(EpochReport(training.epoch, validation_bits, training.epochs_left, *about))
        elsewhere.append(training.epoch)

    trainings = in_stacks(begin, finish, count, stack, str(sets.subsets.shape[1]), checkpoints)
    return Fit.of(ensemble, trainings, stack)


class Engine:
    """The training of a run's seeds; an interrupted run continues from its checkpoints.

    Args:
        prepared: data and architecture.
        run: where checkpoints are kept.

    Attributes:
        orders: of each seed, all training examples, [S, N]; its prefixes are the seed's training sets.
        stacking: how many seeds train at once (`train.stacking`).

    Raises:
        ValueError: train.stack=all with an architecture that cannot be stacked.
    """

    def __init__(self, prepared: PreparedTraining, run: Run) -> None:
        keep_freed_memory()
        self._bench = prepared
        total = len(prepared.data["train"])
        self.orders = torch.stack([permutation(seed, total) for seed in prepared.seeds]).to(prepared.job.device)
        self._checkpoints = Checkpoints(run.directory, prepared.settings.checkpoint_every_s, run.require_lease)
        self.stacking = choose(prepared.ensemble, len(prepared.seeds), prepared.data["train"], prepared.settings)
        if len(prepared.seeds) > 1:
            log.info("seeds are trained %s: %s", self.stacking.how, self.stacking.why)

    def fit(
        self, subsets: Tensor, report: Report, held: Tensor | None = None, counterparts: Counterparts | None = None
    ) -> Fit:
        """Train every seed on its subset [S, n] of the training split; see `fit`.

        Stopped by the validation split, or by others of the training split [S, m].
        """
        prepared, stack = self._bench, self.stacking.stack
        splits = prepared.data["train"], prepared.data["validation" if held is None else "train"]
        sets = TrainingSets(prepared.seeds, subsets, *splits, held, counterparts or {})
        return fit(prepared.ensemble, sets, prepared.settings, report, stack=stack, checkpoints=self._checkpoints)

    def in_stacks(self, begin: Callable[[slice], R], finish: Callable[[R], None], name: str) -> list[R]:
        """Compute something else of every seed; see `in_stacks`."""
        return in_stacks(begin, finish, len(self._bench.seeds), self.stacking.stack, name, self._checkpoints)

    def finished(self, n: int) -> None:
        """Delete checkpoints of the trainings of size n."""
        self._checkpoints.delete(f"{n}-")
