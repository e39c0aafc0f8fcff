"""The one training loop: members in lockstep, each with its own data, early stopping and best weights."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from train.data import DeviceImages
from train.early_stopping import EarlyStopping, MemberCurve
from train.ensemble import Ensemble, Weights
from train.optimizer import ScheduleFree
from train.order import EpochOrder
from train.randomness import generator
from train.settings import TrainSettings


class NonFiniteLossError(RuntimeError):
    """A training diverged."""


@dataclass(frozen=True)
class EpochReport:
    """Where a training stands after an evaluation.

    Attributes:
        epoch: epochs finished.
        validation_bits: latest validation loss of each member that was still training.
        members: members at the start.
    """

    epoch: int
    validation_bits: Sequence[float]
    members: int

    def __str__(self) -> str:
        going = len(self.validation_bits)
        mean = sum(self.validation_bits) / going
        return f"epoch {self.epoch}: validation {mean:.3f} bits, {going} of {self.members} seeds training"


@dataclass(frozen=True)
class Fit:
    """Trained members, in the order of the seeds.

    Attributes:
        ensemble: their architecture.
        best: averaged weights [S, ...] at each member's lowest validation loss.
        last: averaged weights [S, ...] when each member stopped.
        curves: losses over the epochs.
    """

    ensemble: Ensemble
    best: Weights
    last: Weights
    curves: Sequence[MemberCurve]

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
        stacks = [slice(None)] if self.ensemble.stacks else [slice(s, s + 1) for s in range(len(self.curves))]
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

    Raises:
        NonFiniteLossError: a loss is NaN or infinite; names training size, seed, epoch and learning rate.
    """
    stacks = [list(seeds)] if ensemble.stacks else [[seed] for seed in seeds]
    trainings = []
    for stack, subset in zip(stacks, subsets.split([len(stack) for stack in stacks]), strict=True):
        training = Training(ensemble, stack, subset, train, validation, settings)
        training.run(report)
        trainings.append(training)
    return Fit(
        ensemble,
        {name: torch.cat([training.best[name] for training in trainings]) for name in ensemble.names},
        {name: torch.cat([training.last[name] for training in trainings]) for name in ensemble.names},
        [stopping.curve for training in trainings for stopping in training.stopping],
    )


class Training:
    """One stack of members, from initial weights to the best ones. Members that stop leave the stack."""

    def __init__(
        self,
        ensemble: Ensemble,
        seeds: Sequence[int],
        subsets: Tensor,
        train: DeviceImages,
        validation: DeviceImages,
        settings: TrainSettings,
    ) -> None:
        self.ensemble, self.seeds, self.subsets = ensemble, seeds, subsets
        self.train, self.validation, self.settings = train, validation, settings
        n = subsets.shape[1]
        self.order = EpochOrder(seeds, n, train.num_views, settings)
        self.weights = ensemble.initial_weights([generator(seed, n, "init") for seed in seeds], subsets.device)
        self.best = {name: weight.clone() for name, weight in self.weights.items()}
        self.last = {name: weight.clone() for name, weight in self.weights.items()}
        self.optimizer = ScheduleFree(
            {name: weight.requires_grad_() for name, weight in self.weights.items()},
            ensemble.model.learning_rates(),
            lr=settings.lr,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            warmup_steps=settings.warmup_steps,
        )
        self.optimizer.train()
        # members that are trained one by one alone have stochastic depth, so a stack's first seed is its only one
        self._stochastic_depth = generator(seeds[0], n, "stochastic depth")
        self.epoch = 0
        self.stopping = [EarlyStopping(seed, settings) for seed in seeds]
        self.active = list(range(len(seeds)))  # members still training, as positions in `seeds`
        self._loss_sum = torch.zeros(len(seeds), dtype=torch.float64, device=subsets.device)  # since evaluation
        self._losses_summed = 0

    def run(self, report: Callable[[EpochReport], None]) -> None:
        """Train until every member has stopped."""
        self.evaluate()
        while self.active:
            self.run_epoch()
            if self.epoch % self.settings.eval_every == 0 or self.epoch == self.settings.max_epochs:
                validation_bits = self.evaluate()
                report(EpochReport(self.epoch, validation_bits, len(self.seeds)))

    def run_epoch(self) -> None:
        """One pass of every member over its training set; nothing here waits for the device."""
        device = self.subsets.device
        positions, views = self.order.draw(self.active, device)
        members = torch.tensor(self.active, device=device)[:, None, None]
        index = self.subsets[members, positions]
        for step in range(self.order.steps):
            x, z = self.train.augmented(index[:, step], views[:, step])
            with self.ensemble.training(self._stochastic_depth):
                losses = self.ensemble.losses(self.weights, x, z)
            self.optimizer.zero_grad()
            losses.sum().backward()
            self.optimizer.step()
            self._loss_sum += losses.detach()
        self._losses_summed += self.order.steps
        self.epoch += 1

    def evaluate(self) -> list[float]:
        """Score the averaged weights on the validation split, keep the best, let go of members that stop.

        Returns the validation loss in bits of each member that was training.
        """
        averaged = self.optimizer.averaged()
        everything = torch.arange(len(self.validation), device=self.subsets.device)
        bits, _ = self.ensemble.score(averaged, self.validation.plain, everything, self.settings.eval_batch_size)
        validation_bits = bits.tolist()
        going = []
        for position, (member, train_bits) in enumerate(zip(self.active, self._train_bits(), strict=True)):
            loss = validation_bits[position]
            self._require_finite(member, train_bits, loss)
            if self.stopping[member].update(self.epoch, train_bits, loss):
                _put(self.best, member, averaged, position)
            if self.stopping[member].stopped or self.epoch >= self.settings.max_epochs:
                _put(self.last, member, averaged, position)
            else:
                going.append(position)
        if len(going) < len(self.active):
            self._keep(going)
        self._loss_sum.zero_()
        self._losses_summed = 0
        return validation_bits

    def _train_bits(self) -> list[float | None]:
        """Mean training loss of each member since the last evaluation, on augmented batches, in bits."""
        if not self._losses_summed:
            return [None] * len(self.active)
        return (self._loss_sum / (self._losses_summed * math.log(2))).tolist()

    def _keep(self, positions: list[int]) -> None:
        """Go on with these members of the stack alone."""
        self.active = [self.active[position] for position in positions]
        if self.active:
            kept = torch.tensor(positions, device=self.subsets.device)
            self.weights = self.optimizer.keep_members(kept)
            self._loss_sum = self._loss_sum[kept]

    def _require_finite(self, member: int, train_bits: float | None, validation_bits: float) -> None:
        if math.isfinite(validation_bits) and math.isfinite(train_bits or 0.0):
            return
        raise NonFiniteLossError(
            f"the loss is not finite (training {train_bits}, validation {validation_bits} bits) at training size "
            f"{self.subsets.shape[1]}, seed {self.seeds[member]}, epoch {self.epoch}, learning rate "
            f"{self.settings.lr:g}: lower train.lr or raise train.warmup_steps"
        )


def _put(stack: Weights, member: int, averaged: Weights, position: int) -> None:
    for name, weight in averaged.items():
        stack[name][member] = weight[position]
