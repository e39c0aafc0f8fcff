"""Training in epochs: each member learns its own training set until its validation loss stops improving.

`fit_members` trains all seeds, stack by stack, and returns a `Fit`. Each evaluation is reported as an `EpochReport`.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.loss_curves import MemberCurve, label_entropy_bits
from train.checkpoint import Checkpoints, State
from train.counterpart_losses import CounterpartCurves, CounterpartRow, Counterparts
from train.device_images import DeviceImages
from train.early_stopping import ending, epochs_left
from train.ensemble import Ensemble, Evaluation, Weights, temperatures, tempered
from train.randomness import Draws, EpochOrder, generator
from train.settings import TrainSettings
from train.trainer import NonFiniteLossError, Trainer

Report = Callable[["EpochReport"], object]


def fit_members(
    ensemble: Ensemble,
    data: Mapping[str, DeviceImages],
    seeds: Sequence[int],
    subsets: Tensor,
    settings: TrainSettings,
    report: Report = lambda _: None,
    *,
    held_out: Tensor | None = None,
    counterparts: Counterparts | None = None,
    stack: int | None = None,
    checkpoints: Checkpoints | None = None,
) -> "Fit":
    """Train one member per seed, each on its own subset of the training split, until it stops improving.

    All random draws come from generators seeded by the member's seed and subset size, so stacked members train as they
    would alone.

    Args:
        ensemble: the architecture.
        data: splits on the device: "train", and "validation" unless `held_out` stops the members.
        seeds: one per member, distinct.
        subsets: positions in the training split, [S, n].
        settings: how to train.
        report: called after every evaluation.
        held_out: positions in the training split of the examples for early stopping, [S, m]; by default early
            stopping uses the validation split.
        counterparts: samples whose losses are recorded during training, by name (`train.counterpart_losses`).
        stack: number of members that train as one network; by default all, or one if the model has no stacked layers.
        checkpoints: where unfinished trainings are saved; signals then wait until the state is saved.

    Raises:
        NonFiniteLossError: a training diverged; names the size, seed, epoch and learning rate.
        MemoryExhaustedError: names the setting to lower.
    """
    count, n = subsets.shape
    stack = (count if ensemble.model.stackable else 1) if stack is None else stack
    stacks = -(-count // stack)
    trainers: list[EpochTrainer] = []
    for i in range(stacks):
        members = slice(i * stack, (i + 1) * stack)
        stopping = None if held_out is None else held_out[members]
        trainer = EpochTrainer(
            ensemble, data, seeds[members], subsets[members], settings,
            held_out=stopping, counterparts=counterparts, report=report, stack=(i, stacks),
        )  # fmt: skip
        with checkpoints.continued(f"{n}-{i}", trainer, keep=stacks > 1) if checkpoints else nullcontext():
            trainer.run()
        trainers.append(trainer)
    return Fit.of(trainers, stack)


class EpochTrainer(Trainer):
    """A stack of members that learn in epochs, each of which leaves the stack when it stops.

    Args:
        ensemble: the architecture.
        data: as for `fit_members`.
        seeds: one per member, distinct.
        subsets: positions in the training split, [S, n].
        settings: how to train.
        held_out: positions in the training split of the examples that stop each member, [S, m]; None for the
            validation split.
        counterparts: samples whose losses are recorded; none by default.
        report: called after every evaluation but the first.
        stack: index of this stack, from 0, and the number of stacks, for reports.

    Attributes:
        best: averaged weights [S, ...] at each member's lowest validation loss.
        last: averaged weights [S, ...] when each member stopped.
        curves: each member's losses so far.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        data: Mapping[str, DeviceImages],
        seeds: Sequence[int],
        subsets: Tensor,
        settings: TrainSettings,
        *,
        held_out: Tensor | None = None,
        counterparts: Counterparts | None = None,
        report: Report = lambda _: None,
        stack: tuple[int, int] = (0, 1),
    ) -> None:
        self.n, train = subsets.shape[1], data["train"]
        initial = ensemble.initial_weights([generator(seed, self.n, "init") for seed in seeds], subsets.device)
        super().__init__(ensemble, seeds, initial, train, settings)
        self.subsets, self.held_out = subsets, held_out
        self.stopping = data["validation"] if held_out is None else train
        self.order = EpochOrder(seeds, self.n, train.num_views, settings, ensemble.drop_rates)
        self.best = {name: weight.clone() for name, weight in initial.items()}
        self.last = {name: weight.clone() for name, weight in initial.items()}
        self.curves = [
            MemberCurve(seed, entropy)
            for seed, entropy in zip(seeds, map(label_entropy_bits, train.labels[subsets]), strict=True)
        ]
        self.followed = CounterpartCurves(ensemble, counterparts or {}, self.order.steps)
        self._report, self._stack = report, stack
        self._loss_sum = torch.zeros(len(seeds), dtype=torch.float64, device=subsets.device)  # since evaluation
        self._losses_summed = 0

    @property
    def epochs_left(self) -> int:
        """A lower bound on the epochs until every member has stopped."""
        left = (epochs_left(self.curves[member], self.settings, self.order.steps) for member in self.active)
        return max(left, default=0)

    def __str__(self) -> str:
        return f"training size {self.n}, epoch {self.round}"

    def begin_round(self) -> Draws:
        """Draw the next epoch of each member still in training; before the first epoch, score the initial weights."""
        if not self.curves[0].epoch:
            self._follow_counterparts()
            self._evaluate()
        draws = self.order.draw(self.active, self.subsets.device)
        members = torch.tensor(self.active, device=self.subsets.device)[:, None]
        return Draws(self.subsets[members, draws.positions], draws.views, draws.factors)

    def after_step(self, losses: Tensor) -> None:
        self._loss_sum += losses
        self._losses_summed += 1
        self._follow_counterparts()

    def end_round(self) -> None:
        if self.round % self.settings.eval_every == 0 or self.round == self.settings.max_epochs:
            validation_bits = self._evaluate()
            self._report(EpochReport(self.round, validation_bits, self.epochs_left, len(self.seeds), self._stack))

    def _evaluate(self) -> list[float]:
        """Score the averaged weights on the stopping examples, keep the best ones, and drop members that end.

        Returns:
            The validation loss in bits of each member that was still training before the evaluation.
        """
        averaged = self.optimizer.averaged()
        held_out = None if self.held_out is None else self.held_out[self.active]
        validation_bits = self.ensemble.score(averaged, self.stopping, held_out).bits.tolist()
        improved, stopped, going = [], [], []
        for position, (member, train_bits) in enumerate(zip(self.active, self._train_bits(), strict=True)):
            curve, loss = self.curves[member], validation_bits[position]
            self._require_finite(member, train_bits, loss)
            if curve.record(self.round, train_bits, loss):
                improved.append(position)
            curve.ended = ending(curve, self.settings, self.order.steps)
            (stopped if curve.ended else going).append(position)
        self._copy(self.best, averaged, improved)
        self._copy(self.last, averaged, stopped)
        if stopped:
            self._follow_counterparts(always=True)
            self._keep(going)
        self._loss_sum.zero_()
        self._losses_summed = 0
        return validation_bits

    def _train_bits(self) -> list[float | None]:
        """Return each member's mean training loss in bits on the augmented batches since the last evaluation."""
        if not self._losses_summed:
            return [None] * len(self.active)
        return (self._loss_sum / (self._losses_summed * math.log(2))).tolist()

    def _require_finite(self, member: int, train_bits: float | None, validation_bits: float) -> None:
        if math.isfinite(validation_bits) and math.isfinite(train_bits or 0.0):
            return
        raise NonFiniteLossError(
            f"the loss is not finite (training {train_bits}, validation {validation_bits} bits) at training size "
            f"{self.n}, seed {self.seeds[member]}, epoch {self.round}, learning rate "
            f"{self.settings.lr:g}: lower train.lr or raise train.warmup_steps"
        )

    def _copy(self, stack: Weights, averaged: Weights, positions: list[int]) -> None:
        """Copy the averaged weights of the active members at these positions to their rows of `stack`."""
        if not positions:
            return
        device = self.subsets.device
        source = torch.tensor(positions, device=device)
        target = torch.tensor([self.active[position] for position in positions], device=device)
        for name, weight in averaged.items():
            stack[name][target] = weight[source]

    def _keep(self, positions: Sequence[int]) -> None:
        super()._keep(positions)
        if self.active:
            self._loss_sum = self._loss_sum[torch.tensor(positions, device=self.subsets.device)]

    def _follow_counterparts(self, *, always: bool = False) -> None:
        """Record losses on counterparts if they are due at this optimizer step; `always` records them in any case."""
        step = self.round * self.order.steps + self.step
        if self.followed.due(step, always=always):
            self.followed.note(step, [self.seeds[member] for member in self.active], self.optimizer.averaged())

    @property
    def _members(self) -> dict[str, Any]:
        return {**super()._members, "n": self.n}

    def _own_state(self) -> State:
        weights = {f"best.{name}": weight for name, weight in self.best.items()}
        weights |= {f"last.{name}": weight for name, weight in self.last.items()}
        return weights | self.order.state() | {"loss_sum": self._loss_sum}, {
            "losses_summed": self._losses_summed,
            "evaluations": [[c.epoch, c.train_loss_bits, c.validation_loss_bits, c.ended] for c in self.curves],
            **({"counterparts": self.followed.rows} if self.followed.samples else {}),
        }

    def _restore_own(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        for kind, weights in (("best", self.best), ("last", self.last)):
            for name, weight in weights.items():
                weight.copy_(tensors[f"{kind}.{name}"])
        for curve, (epochs, train, validation, ended) in zip(self.curves, values["evaluations"], strict=True):
            curve.epoch, curve.train_loss_bits, curve.validation_loss_bits = [*epochs], [*train], [*validation]
            curve.ended = ended
        self.order.restore(tensors)
        self._loss_sum = tensors["loss_sum"].to(self.subsets.device)
        self._losses_summed = values["losses_summed"]
        self.followed.rows = [CounterpartRow(*row) for row in values.get("counterparts", [])]


@dataclass(frozen=True)
class EpochReport:
    """The state of a training after an evaluation.

    Attributes:
        epoch: epochs finished.
        validation_bits: latest validation loss of each member that was still training.
        epochs_left: lower bound on the epochs until every member has stopped; 0 once all have.
        members: number of members in the stack at the start.
        stack: index of this stack, from 0, and the number of stacks.
    """

    epoch: int
    validation_bits: Sequence[float]
    epochs_left: int
    members: int
    stack: tuple[int, int]

    @property
    def mean_epochs(self) -> tuple[float, float]:
        """Number of epochs finished and a lower bound on the number left, averaged over equally long stacks."""
        i, stacks = self.stack
        expected = self.epoch + self.epochs_left
        done = i * expected + self.epoch
        return done / stacks, expected - done / stacks

    def __str__(self) -> str:
        going = len(self.validation_bits)
        i, stacks = self.stack
        # Seeds train in one stack or one by one (`train.stacking_rule`), so each of several stacks is a single seed.
        which = f"seed {i + 1} of {stacks}" if stacks > 1 else f"{going} of {self.members} seeds training"
        losses = self.validation_bits if going <= 5 else (min(self.validation_bits), max(self.validation_bits))
        shown = (" " if going <= 5 else " to ").join(f"{bits:.3f}" for bits in losses)
        return f"epoch {self.epoch}: validation {shown} bits, {which}"


@dataclass(frozen=True)
class Fit:
    """Trained members, in the order of the seeds.

    Attributes:
        ensemble: their architecture.
        best: averaged weights [S, ...] at each member's lowest validation loss.
        last: averaged weights [S, ...] when each member stopped.
        curves: losses over the epochs.
        stack: number of members that run at once.
        counterparts: losses on counterparts during the trainings.
    """

    ensemble: Ensemble
    best: Weights
    last: Weights
    curves: Sequence[MemberCurve]
    stack: int
    counterparts: Sequence[CounterpartRow] = ()

    @classmethod
    def of(cls, trainers: Sequence[EpochTrainer], stack: int) -> "Fit":
        """Join the members of stacks of `stack` members each."""
        ensemble = trainers[0].ensemble
        best, last = (
            {name: torch.cat([getattr(trainer, kind)[name] for trainer in trainers]) for name in ensemble.names}
            for kind in ("best", "last")
        )
        curves = [curve for trainer in trainers for curve in trainer.curves]
        rows = [row for trainer in trainers for row in trainer.followed.rows]
        return cls(ensemble, best, last, curves, stack, rows)

    def score(
        self,
        images: DeviceImages,
        index: Tensor | None = None,
        *,
        weights: Weights | None = None,
        temperatures: Tensor | None = None,
    ) -> Evaluation:
        """Score all members with `Ensemble.score`, stack by stack; by default with the best weights."""
        scored = []
        for rows, stack, part in self._stacks(weights or self.best, index):
            nats = tempered(None if temperatures is None else temperatures[rows])
            scored.append(self.ensemble.score(stack, images, part, nats=nats))
        return Evaluation(*map(torch.cat, zip(*scored, strict=True)))

    def logits(self, images: DeviceImages) -> Tensor:
        """Return the logits of the best weights, [S, N, k]."""
        outputs = (self.ensemble.outputs(stack, images) for _, stack, _ in self._stacks(self.best, None))
        return torch.cat([torch.cat([logits for logits, _ in stack], 1) for stack in outputs])

    @torch.no_grad()
    def temperatures(self, images: DeviceImages, index: Tensor | None = None) -> Tensor:
        """Fit each member's temperature, [S], for the best weights on the examples at `index`."""
        fitted = []
        for _, stack, part in self._stacks(self.best, index):
            logits, z = (torch.cat(parts, 1) for parts in zip(*self.ensemble.outputs(stack, images, part), strict=True))
            fitted.append(temperatures(logits, z))
        return torch.cat(fitted)

    def _stacks(self, weights: Weights, index: Tensor | None) -> Iterator[tuple[slice, Weights, Tensor | None]]:
        for first in range(0, len(self.curves), self.stack):
            rows = slice(first, first + self.stack)
            stack = {name: weight[rows] for name, weight in weights.items()}
            yield rows, stack, index if index is None or index.ndim == 1 else index[rows]
