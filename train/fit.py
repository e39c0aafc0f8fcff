"""All members of an ensemble trained: in one stack, one after another, or each in a thread of its own."""

import contextlib
import copy
import dataclasses
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from harness.interruption import InterruptedThreadError, Interruption, interruptible
from train.checkpoint import Checkpoints
from train.data import DeviceImages
from train.early_stopping import MemberCurve
from train.ensemble import Ensemble, Fetch, Weights
from train.memory import advice
from train.settings import TrainSettings
from train.threads import in_threads
from train.training import EpochReport, Training

log = logging.getLogger(__name__)
T = TypeVar("T")


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
    report: Callable[[EpochReport], None] = lambda _: None,
    *,
    stack: int | None = None,
    threads: bool = False,
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
        threads: train the stacks at the same time, instead of one after another.
        checkpoints: where unfinished trainings are saved and found again; signals then wait for the save.

    Raises:
        NonFiniteLossError: a loss is NaN or infinite; names training size, seed, epoch and learning rate.
        MemoryExhaustedError: says which setting to lower.
    """
    stack = (len(seeds) if ensemble.stacks else 1) if stack is None else stack
    groups = [list(seeds[first : first + stack]) for first in range(0, len(seeds), stack)]
    parts = subsets.split(stack)
    progress = _Progress(report, len(groups))

    def train_stack(i: int, check: Callable[[], None] = lambda: None) -> Training:
        own = copy.deepcopy(ensemble) if threads else ensemble  # a forward pass lends its module the weights
        training = Training(own, groups[i], parts[i], train, validation, settings)
        saved = _Saved(checkpoints, f"{subsets.shape[1]}-{i}", interruption) if checkpoints else None
        _run(training, saved, progress.of(i), check, keep=len(groups) > 1)
        return training

    with interruptible() if checkpoints else contextlib.nullcontext(Interruption()) as interruption:
        while True:
            try:
                count = len(groups)
                trainings = in_threads(train_stack, count) if threads else [train_stack(i) for i in range(count)]
                break
            except InterruptedThreadError:  # where its handler returns, go on from the checkpoints
                interruption.deliver()
    curves = [stopping.curve for training in trainings for stopping in training.stopping]
    best, last = (_join([getattr(training, kind) for training in trainings]) for kind in ("best", "last"))
    return Fit(ensemble, best, last, curves, stack)


class _Progress:
    """Reports of several stacks, whether one after another or at the same time, as one."""

    def __init__(self, report: Callable[[EpochReport], None], stacks: int) -> None:
        self._report, self._epochs, self._lock = report, [0] * stacks, threading.Lock()

    def of(self, i: int) -> Callable[[EpochReport], None]:
        """What stack number `i` calls."""

        def place(report: EpochReport) -> None:
            with self._lock:
                self._epochs[i] = report.epoch
                elsewhere = sum(self._epochs) - report.epoch
                stack = (i, len(self._epochs))
                self._report(dataclasses.replace(report, stack=stack, epochs_elsewhere=elsewhere))

        return place


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


def _run(
    training: Training,
    saved: _Saved | None,
    report: Callable[[EpochReport], None],
    check: Callable[[], None],
    *,
    keep: bool,
) -> None:
    """Run a training from its last checkpoint on; `keep`: save it when finished, too, as there are others."""
    if saved is not None:
        saved.resume(training)
    save_if_due = training.before_step

    def before_step() -> None:
        save_if_due()
        check()

    training.before_step = before_step
    unfinished = bool(training.active)
    training.run(report)
    if saved is not None and keep and unfinished:
        saved.checkpoints.save(saved.name, training.state())


def _join(stacks: Sequence[Weights]) -> Weights:
    return {name: torch.cat([weights[name] for weights in stacks]) for name in stacks[0]}
