"""Trainings to convergence: members in lockstep, each with its own data, early stopping and best weights."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from train.counterparts import CounterpartCurves, Counterparts
from train.data import DeviceImages, label_entropy_bits
from train.early_stopping import EarlyStopping
from train.ensemble import Ensemble, Weights
from train.learner import Learner
from train.order import Draws, EpochOrder
from train.randomness import generator
from train.settings import TrainSettings

_FORMAT = 2  # of a training's state; what an earlier version saved does not go on


class NonFiniteLossError(RuntimeError):
    """A training that diverged."""


@dataclass(frozen=True)
class TrainingSets:
    """The members of an ensemble, and the examples that train and stop each.

    Attributes:
        seeds: one per member, distinct.
        subsets: positions in `train`, [S, n].
        train: training split.
        validation: split for early stopping.
        held: positions in `validation` that stop each member, [S, m]; None for all.
        counterparts: samples whose losses are followed along the training, by name (`train.counterparts`).
    """

    seeds: Sequence[int]
    subsets: Tensor
    train: DeviceImages
    validation: DeviceImages
    held: Tensor | None = None
    counterparts: Counterparts = field(default_factory=dict)

    def of(self, members: slice) -> "TrainingSets":
        """Return the sets of some members."""
        held = None if self.held is None else self.held[members]
        return replace(self, seeds=self.seeds[members], subsets=self.subsets[members], held=held)


class Training(Learner):
    """A stack of members, trained from initial weights to the best ones. Members that stop leave the stack."""

    def __init__(self, ensemble: Ensemble, sets: TrainingSets, settings: TrainSettings) -> None:
        seeds, subsets, train = sets.seeds, sets.subsets, sets.train
        self.n = subsets.shape[1]
        initial = ensemble.initial_weights([generator(seed, self.n, "init") for seed in seeds], subsets.device)
        super().__init__(ensemble, initial, train, settings)
        self.seeds, self.subsets, self.validation, self.held = seeds, subsets, sets.validation, sets.held
        self.order = EpochOrder(seeds, self.n, train.num_views, settings, ensemble.drop_rates)
        self.best, self.last = (
            {name: weight.clone() for name, weight in initial.items()} for _ in ("lowest validation loss", "end")
        )
        self.epoch = 0
        self.step = 0  # of this epoch
        self.stopping = [
            EarlyStopping(seed, settings, epoch_steps=self.order.steps, label_entropy_bits=entropy)
            for seed, entropy in zip(seeds, map(label_entropy_bits, train.labels[subsets]), strict=True)
        ]
        self.active = list(range(len(seeds)))  # members still training, as positions in `seeds`
        self.followed = CounterpartCurves(ensemble, sets.counterparts, self.order.steps)
        self._loss_sum = torch.zeros(len(seeds), dtype=torch.float64, device=subsets.device)  # since evaluation
        self._losses_summed = 0

    @property
    def finished(self) -> bool:
        return not self.active

    @property
    def epochs_left(self) -> int:
        """The epochs that one of the members will still be trained for at least."""
        return max((self.stopping[member].epochs_left for member in self.active), default=0)

    def __str__(self) -> str:
        return f"training size {self.n}, epoch {self.epoch}"

    def run(self) -> Iterator[list[float]]:
        """Train until every member has stopped, from one evaluation to the next: see `evaluate`."""
        if not self.stopping[0].curve.epoch:
            self._follow_counterparts()
            self.evaluate()
        while self.active:
            self.run_epoch()
            if self.epoch % self.settings.eval_every == 0 or self.epoch == self.settings.max_epochs:
                yield self.evaluate()

    def run_epoch(self) -> None:
        """Train every member for one pass over its training set; nothing waits for the device."""
        draws = self.order.draw(self.active, self.subsets.device)
        members = torch.tensor(self.active, device=self.subsets.device)[:, None]
        own = Draws(self.subsets[members, draws.positions], draws.views, draws.factors)
        for losses in self.learn(own, self.step):
            self._loss_sum += losses
            self._losses_summed += 1
            self.step += 1
            self._follow_counterparts()
        self.step = 0
        self.epoch += 1

    def evaluate(self) -> list[float]:
        """Score the averaged weights on the validation split, keep the best, let go of members that stop.

        Returns the validation loss in bits of each member that was training.
        """
        averaged = self.optimizer.averaged()
        held = None if self.held is None else self.held[self.active]
        validation_bits = self.ensemble.score(averaged, self.validation, held).bits.tolist()
        improved, stopped, going = [], [], []
        for position, (member, train_bits) in enumerate(zip(self.active, self._train_bits(), strict=True)):
            loss = validation_bits[position]
            self._require_finite(member, train_bits, loss)
            if self.stopping[member].update(self.epoch, train_bits, loss):
                improved.append(position)
            (stopped if self.stopping[member].curve.ended else going).append(position)
        self._put(self.best, averaged, improved)
        self._put(self.last, averaged, stopped)
        if stopped:
            self._follow_counterparts(always=True)
            self._keep(going)
        self._loss_sum.zero_()
        self._losses_summed = 0
        return validation_bits

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return tensors by name and JSON-like values with which `restore` goes on bit by bit."""
        tensors, numbers = self.optimizer.state() if self.active else ({}, {})
        for kind, weights in (("best", self.best), ("last", self.last)):
            tensors |= {f"{kind}.{name}": weight for name, weight in weights.items()}
        curves = [stopping.curve for stopping in self.stopping]
        return tensors | self.order.state() | {"loss_sum": self._loss_sum}, {
            "members": self._members,
            "epoch": self.epoch,
            "step": self.step,
            "losses_summed": self._losses_summed,
            "active": self.active,
            "evaluations": [[c.epoch, c.train_loss_bits, c.validation_loss_bits] for c in curves],
            "optimizer": numbers,
            **({"counterparts": self.followed.rows} if self.followed.samples else {}),
        }

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> bool:
        """Go on where another training with the same data and settings stood; False if it had other members."""
        if values.get("members") != self._members:
            return False
        device = self.subsets.device
        for kind, weights in (("best", self.best), ("last", self.last)):
            for name, weight in weights.items():
                weight.copy_(tensors[f"{kind}.{name}"])
        for stopping, evaluations in zip(self.stopping, values["evaluations"], strict=True):
            for evaluation in zip(*evaluations, strict=True):
                stopping.update(*evaluation)
        self._keep(values["active"])
        if self.active:
            self.optimizer.restore(tensors, values["optimizer"])
        self.order.restore(tensors)
        self._loss_sum, self._losses_summed = tensors["loss_sum"].to(device), values["losses_summed"]
        self.epoch, self.step = values["epoch"], values["step"]
        self.followed.rows = values.get("counterparts", [])
        return True

    def _follow_counterparts(self, *, always: bool = False) -> None:
        """Note losses on counterparts if this optimiser step is one of those chosen, or a member stops."""
        step = self.epoch * self.order.steps + self.step
        if always or self.followed.due(step):
            self.followed.note(step, self.active, self.optimizer.averaged())

    @property
    def _members(self) -> dict[str, Any]:
        """The identity of the members: a saved state fits these alone."""
        return {"format": _FORMAT, "seeds": list(self.seeds), "n": self.n}

    def _train_bits(self) -> list[float | None]:
        """Return each member's mean training loss since the last evaluation, on augmented batches, in bits."""
        if not self._losses_summed:
            return [None] * len(self.active)
        return (self._loss_sum / (self._losses_summed * math.log(2))).tolist()

    def _put(self, stack: Weights, averaged: Weights, positions: list[int]) -> None:
        """Copy the weights at these positions among the active members to their members' places."""
        if not positions:
            return
        device = self.subsets.device
        source = torch.tensor(positions, device=device)
        target = torch.tensor([self.active[position] for position in positions], device=device)
        for name, weight in averaged.items():
            stack[name][target] = weight[source]

    def _keep(self, positions: list[int]) -> None:
        """Go on with these members of the stack alone."""
        self.active = [self.active[position] for position in positions]
        if self.active:
            kept = torch.tensor(positions, device=self.subsets.device)
            self.optimizer.keep_members(kept)
            self._loss_sum = self._loss_sum[kept]

    def _require_finite(self, member: int, train_bits: float | None, validation_bits: float) -> None:
        if math.isfinite(validation_bits) and math.isfinite(train_bits or 0.0):
            return
        raise NonFiniteLossError(
            f"the loss is not finite (training {train_bits}, validation {validation_bits} bits) at training size "
            f"{self.n}, seed {self.seeds[member]}, epoch {self.epoch}, learning rate "
            f"{self.settings.lr:g}: lower train.lr or raise train.warmup_steps"
        )
