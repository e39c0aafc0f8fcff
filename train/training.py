"""The one training loop: members in lockstep, each with its own data, early stopping and best weights."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from train.data import DeviceImages, label_entropy_bits
from train.early_stopping import EarlyStopping
from train.ensemble import Ensemble, Weights
from train.memory import advice
from train.optimizer import ScheduleFree
from train.order import EpochOrder
from train.randomness import generator
from train.settings import TrainSettings

_GATHERED = {"cpu": 2**21, "cuda": 2**28}  # bytes of images gathered at a time: what caches hold, or launches cost


class NonFiniteLossError(RuntimeError):
    """A training diverged."""


@dataclass(frozen=True)
class EpochReport:
    """Where a training stands after an evaluation.

    Attributes:
        epoch: epochs finished.
        validation_bits: latest validation loss of each member that was still training.
        members: members at the start, trained at the same time.
        stack: number of this stack of members, from 0, and how many stacks there are.
        epochs_elsewhere: epochs that the other stacks have finished, together.
    """

    epoch: int
    validation_bits: Sequence[float]
    members: int
    stack: tuple[int, int] = (0, 1)
    epochs_elsewhere: int = 0

    @property
    def mean_epochs(self) -> float:
        """Epochs finished, averaged over all stacks."""
        return (self.epochs_elsewhere + self.epoch) / self.stack[1]

    def __str__(self) -> str:
        going = len(self.validation_bits)
        i, stacks = self.stack
        which = f"seed {i + 1} of {stacks}" if stacks > 1 else f"{going} of {self.members} seeds training"
        losses = [f"{bits:.3f}" for bits in self.validation_bits]
        shown = " ".join(losses) if going <= 5 else f"{min(losses)} to {max(losses)}"
        return f"epoch {self.epoch}: validation {shown} bits, {which}"


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
        initial = ensemble.initial_weights([generator(seed, n, "init") for seed in seeds], subsets.device)
        self.best = {name: weight.clone() for name, weight in initial.items()}
        self.last = {name: weight.clone() for name, weight in initial.items()}
        self.optimizer = ScheduleFree(
            initial,
            ensemble.model.learning_rates(),
            lr=settings.lr,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            warmup_steps=settings.warmup_steps,
        )
        # members that are trained one by one alone have stochastic depth, so a stack's first seed is its only one
        self._stochastic_depth = generator(seeds[0], n, "stochastic depth")
        self.epoch = 0
        self.step = 0  # of this epoch
        self.stopping = [
            EarlyStopping(seed, settings, epoch_steps=self.order.steps, label_entropy_bits=entropy)
            for seed, entropy in zip(seeds, map(label_entropy_bits, train.labels[subsets]), strict=True)
        ]
        self.active = list(range(len(seeds)))  # members still training, as positions in `seeds`
        self._loss_sum = torch.zeros(len(seeds), dtype=torch.float64, device=subsets.device)  # since evaluation
        self._losses_summed = 0
        self.before_step: Callable[[], None] = lambda: None  # may save the training's state, and may raise

    def run(self, report: Callable[[EpochReport], None]) -> None:
        """Train until every member has stopped."""
        if not self.stopping[0].curve.epoch:
            self.evaluate()
        while self.active:
            self.run_epoch()
            if self.epoch % self.settings.eval_every == 0 or self.epoch == self.settings.max_epochs:
                validation_bits = self.evaluate()
                report(EpochReport(self.epoch, validation_bits, len(self.seeds)))

    def run_epoch(self) -> None:
        """One pass of every member over its training set; nothing here waits for the device."""
        settings = self.settings
        positions, views = self.order.draw(self.active, self.subsets.device)
        members = torch.tensor(self.active, device=self.subsets.device)[:, None, None]
        index = self.subsets[members, positions].transpose(0, 1)
        with (
            advice("training", batch_size=settings.batch_size, stack=settings.stack),
            self.ensemble.training(self._stochastic_depth),
        ):
            for x, z in self._batches(index, views.transpose(0, 1)):
                self.before_step()
                losses, gradients = self.ensemble.gradients(self.optimizer.weights, x, z)
                self.optimizer.step(gradients)
                self._loss_sum += losses
                self._losses_summed += 1
                self.step += 1
        self.step = 0
        self.epoch += 1

    def _batches(self, index: Tensor, views: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The epoch's batches that are left, images [S, B, C, H, W] and labels [S, B]; several gathered at a time."""
        batch_bytes = index[0].numel() * math.prod(self.train.image_shape) * self.train.images.element_size()
        together = max(1, _GATHERED.get(index.device.type, 0) // batch_bytes)
        for first in range(self.step, len(index), together):
            gathered = slice(first, first + together)
            yield from zip(*self.train.augmented(index[gathered], views[gathered]), strict=True)

    def evaluate(self) -> list[float]:
        """Score the averaged weights on the validation split, keep the best, let go of members that stop.

        Returns the validation loss in bits of each member that was training.
        """
        averaged = self.optimizer.averaged()
        everything = torch.arange(len(self.validation), device=self.subsets.device)
        batch_size = self.settings.eval_batch_size
        with advice("evaluating", eval_batch_size=batch_size, stack=self.settings.stack):
            bits, _ = self.ensemble.score(averaged, self.validation.plain, everything, batch_size)
        validation_bits = bits.tolist()
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
            self._keep(going)
        self._loss_sum.zero_()
        self._losses_summed = 0
        return validation_bits

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that `restore` needs to go on to the bit: tensors by name, and JSON-like values."""
        tensors, numbers = self.optimizer.state() if self.active else ({}, {})
        for kind, weights in (("best", self.best), ("last", self.last)):
            tensors |= {f"{kind}.{name}": weight for name, weight in weights.items()}
        tensors |= self.order.state() | {"stochastic_depth": self._stochastic_depth.get_state()}
        tensors["loss_sum"] = self._loss_sum
        return tensors, {
            "seeds": list(self.seeds),
            "n": self.subsets.shape[1],
            "epoch": self.epoch,
            "step": self.step,
            "losses_summed": self._losses_summed,
            "active": self.active,
            "stopping": [stopping.state() for stopping in self.stopping],
            "optimizer": numbers,
        }

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> bool:
        """Go on where another training with the same data and settings stood; False if it had other members."""
        if values["seeds"] != list(self.seeds) or values["n"] != self.subsets.shape[1]:
            return False
        device = self.subsets.device
        self.best, self.last = (
            {name: tensors[f"{kind}.{name}"].to(device) for name in self.ensemble.names} for kind in ("best", "last")
        )
        self.active = list(values["active"])
        if self.active:
            self.optimizer.restore(tensors, values["optimizer"])
        self.order.restore(tensors)
        self._stochastic_depth.set_state(tensors["stochastic_depth"])
        self._loss_sum, self._losses_summed = tensors["loss_sum"].to(device), values["losses_summed"]
        self.epoch, self.step = values["epoch"], values["step"]
        for stopping, state in zip(self.stopping, values["stopping"], strict=True):
            stopping.restore(state)
        return True

    def _train_bits(self) -> list[float | None]:
        """Mean training loss of each member since the last evaluation, on augmented batches, in bits."""
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
            f"{self.subsets.shape[1]}, seed {self.seeds[member]}, epoch {self.epoch}, learning rate "
            f"{self.settings.lr:g}: lower train.lr or raise train.warmup_steps"
        )
