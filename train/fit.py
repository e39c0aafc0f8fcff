"""All members of an ensemble trained, side by side in one stack or one stack after another."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from train.checkpoint import Checkpoints
from train.data import DeviceImages
from train.early_stopping import MemberCurve
from train.ensemble import Ensemble, Weights
from train.interruption import interruptible
from train.memory import advice
from train.settings import TrainSettings
from train.training import EpochReport, Training

log = logging.getLogger(__name__)


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
        self,
        fetch: Callable[[Tensor], tuple[Tensor, Tensor]],
        index: Tensor,
        batch_size: int,
        *,
        weights: Weights | None = None,
    ) -> tuple[Tensor, Tensor]:
        """As `Ensemble.score`, for any number of members of any architecture; of the best weights by default."""
        weights = self.best if weights is None else weights
        stacks = [slice(s, s + self.stack) for s in range(0, len(self.curves), self.stack)]
        with advice("evaluating", eval_batch_size=batch_size, stack="one" if self.stack == 1 else "all"):
            scored = [
                self.ensemble.score(
                    {name: weight[stack] for name, weight in weights.items()},
                    fetch,
                    index if index.ndim == 1 else index[stack],
                    batch_size,
                )
                for stack in stacks
            ]
        bits, accuracy = zip(*scored, strict=True)
        return torch.cat(bits), torch.cat(accuracy)


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
        stack: members trained at once; all that can be by default.
        checkpoints: where unfinished trainings are saved and found again; signals then wait for the save.

    Raises:
        NonFiniteLossError: a loss is NaN or infinite; names training size, seed, epoch and learning rate.
        MemoryExhaustedError: says which setting to lower.
    """
    stack = (len(seeds) if ensemble.stacks else 1) if stack is None else stack
    groups = [list(seeds[first : first + stack]) for first in range(0, len(seeds), stack)]
    best, last, curves = [], [], []
    epochs_before = 0
    for i, (group, subset) in enumerate(zip(groups, subsets.split(stack), strict=True)):
        training = Training(ensemble, group, subset, train, validation, settings)

        def place(of_stack: EpochReport, i: int = i, epochs_before: int = epochs_before) -> None:
            report(dataclasses.replace(of_stack, stack=(i, len(groups)), epochs_before=epochs_before))

        _run(training, f"{subsets.shape[1]}-{i}", place, checkpoints, keep=len(groups) > 1)
        epochs_before += training.epoch
        best.append(training.best)
        last.append(training.last)
        curves += [stopping.curve for stopping in training.stopping]
    return Fit(ensemble, _join(best), _join(last), curves, stack)


def _run(
    training: Training,
    name: str,
    report: Callable[[EpochReport], None],
    checkpoints: Checkpoints | None,
    *,
    keep: bool,
) -> None:
    """Run a training from its last checkpoint on; `keep`: save it when finished, too, as others come after it."""
    with contextlib.ExitStack() as cleanup:
        if checkpoints is not None:
            interruption = cleanup.enter_context(interruptible())
            saved = checkpoints.load(name)
            if saved is not None and training.restore(*saved):
                log.info("continuing at training size %d, epoch %d", training.subsets.shape[1], training.epoch)
            elif saved is not None:
                log.warning("the checkpoint %s is of other seeds or stacks: this training starts again", name)
            training.before_step = checkpoints.before_step(name, training.state, interruption)
        unfinished = bool(training.active)
        training.run(report)
        if checkpoints is not None and keep and unfinished:
            checkpoints.save(name, training.state())


def _join(stacks: Sequence[Weights]) -> Weights:
    return {name: torch.cat([weights[name] for weights in stacks]) for name in stacks[0]}
