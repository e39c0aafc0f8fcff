"""All members of an ensemble trained: in one stack, or stacks one after another."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from harness.interruption import Interruption, interruptible
from train.checkpoint import Checkpoints
from train.data import DeviceImages
from train.early_stopping import MemberCurve
from train.ensemble import Ensemble, Fetch, Weights
from train.memory import advice
from train.settings import TrainSettings
from train.training import EpochReport, Training

log = logging.getLogger(__name__)
T = TypeVar("T")
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
    """

    ensemble: Ensemble
    best: Weights
    last: Weights
    curves: Sequence[MemberCurve]
    stack: int

    def score(
        self, fetch: Fetch, index: Tensor, batch_size: int, *, weights: Weights | None = None
    ) -> tuple[Tensor, Tensor]:
        """As `Ensemble.score`, for any number of members of any architecture; of the best weights by default."""
        scored = self._by_stack(
            self.ensemble.score, fetch, index, batch_size, self.best if weights is None else weights
        )
        bits, accuracy = zip(*scored, strict=True)
        return torch.cat(bits), torch.cat(accuracy)

    def example_bits(self, fetch: Fetch, index: Tensor, batch_size: int) -> Tensor:
        """As `Ensemble.example_bits`, of the best weights."""
        return torch.cat(self._by_stack(self.ensemble.example_bits, fetch, index, batch_size, self.best))

    def _by_stack(
        self, score: Callable[..., T], fetch: Fetch, index: Tensor, batch_size: int, weights: Weights
    ) -> list[T]:
        stacks = [slice(s, s + self.stack) for s in range(0, len(self.curves), self.stack)]
        with advice("evaluating", eval_batch_size=batch_size, stack="one" if self.stack == 1 else "all"):
            return [
                score(
                    {name: weight[stack] for name, weight in weights.items()},
                    fetch,
                    index if index.ndim == 1 else index[stack],
                    batch_size,
                )
                for stack in stacks
            ]


def fit(
    ensemble: Ensemble,
    seeds: Sequence[int],
    subsets: Tensor,
    train: DeviceImages,
    validation: DeviceImages,
    settings: TrainSettings,
    report: Report = lambda _: None,
    *,
    stack: int | None = None,
    checkpoints: Checkpoints | None = None,
) -> Fit:
    """Train one member per seed, each on its own subset of the training split, until it stops improving.

    A member's initialisation, data order and augmentation are drawn from generators of its seed and
    subset size alone, so that it computes what it would compute without the others.

    Args:
        ensemble: the architecture.
        seeds: one per member, distinct.
        subsets: indices into `train`, [S, n].
        train: training split.
        validation: split for early stopping.
        settings: how to train.
        report: called after every evaluation.
        stack: members in one network; all that can be by default.
        checkpoints: where unfinished trainings are saved and found again; signals then wait for the save.

    Raises:
        NonFiniteLossError: a loss is NaN or infinite; names training size, seed, epoch and learning rate.
        MemoryExhaustedError: says which setting to lower.
    """
    stack = (len(seeds) if ensemble.stacks else 1) if stack is None else stack
    groups = [list(seeds[first : first + stack]) for first in range(0, len(seeds), stack)]
    trainings: list[Training] = []
    with interruptible() if checkpoints else contextlib.nullcontext(Interruption()) as interruption:
        for i, (group, part) in enumerate(zip(groups, subsets.split(stack), strict=True)):
            training = Training(ensemble, group, part, train, validation, settings)
            saved = _Saved(checkpoints, f"{subsets.shape[1]}-{i}", interruption) if checkpoints else None
            before = sum(done.epoch for done in trainings)
            _run(training, saved, _in_place(report, (i, len(groups)), before), keep=len(groups) > 1)
            trainings.append(training)
    curves = [stopping.curve for training in trainings for stopping in training.stopping]
    best, last = (_join([getattr(training, kind) for training in trainings]) for kind in ("best", "last"))
    return Fit(ensemble, best, last, curves, stack)


def _in_place(report: Report, stack: tuple[int, int], before: int) -> Report:
    """Reports of one of several stacks; those before it have finished `before` epochs."""
    return lambda epoch: report(dataclasses.replace(epoch, stack=stack, epochs_elsewhere=before))


@dataclass(frozen=True)
class _Saved:
    """One training's checkpoints."""

    checkpoints: Checkpoints
    name: str
    interruption: Interruption

    def resume(self, training: Training) -> None:
        """Continue from the last checkpoint, if there is one, and save from now on."""
        state = self.checkpoints.load(self.name)
        if state is not None and training.restore(*state):
            log.info("continuing at training size %d, epoch %d", training.subsets.shape[1], training.epoch)
        elif state is not None:
            log.warning("the checkpoint %s is of other seeds or stacks: this training starts again", self.name)
        training.before_step = self.checkpoints.before_step(self.name, training.state, self.interruption)


def _run(training: Training, saved: _Saved | None, report: Report, *, keep: bool) -> None:
    """Run a training from its last checkpoint on; `keep`: save it when finished, too, as there are others."""
    if saved is not None:
        saved.resume(training)
    unfinished = bool(training.active)
    training.run(report)
    if saved is not None and keep and unfinished:
        saved.checkpoints.save(saved.name, training.state())


def _join(stacks: Sequence[Weights]) -> Weights:
    return {name: torch.cat([weights[name] for weights in stacks]) for name in stacks[0]}
