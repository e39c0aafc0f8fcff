"""The training loop, in the order in which things happen.

A run's `Engine` trains every seed on a set of its own. `fit` does so stack by stack: a `Training` takes steps
(`Learner`), evaluates, and ends when all its members have stopped. Each evaluation is reported as an `EpochReport`; the
trained networks are a `Fit`.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from harness.loss_curves import MemberCurve, label_entropy_bits
from harness.run_directory import Run
from train.calibration import tempered
from train.checkpoint import Checkpoints
from train.cuda_graph import GraphedFunction
from train.device_images import DeviceImages
from train.early_stopping import EarlyStopping
from train.ensemble import Ensemble, Scores, Weights
from train.epoch_randomness import Draws, EpochOrder
from train.malloc import keep_freed_memory
from train.matched_sample_losses import CounterpartCurves, CounterpartRow, Counterparts
from train.out_of_memory_advice import advice
from train.prepared_training import PreparedTraining
from train.randomness import generator, permutation
from train.schedule_free import ScheduleFree, ScheduleFreeSettings
from train.settings import TrainSettings
from train.stacking_rule import choose

log = logging.getLogger(__name__)

_FORMAT = 2  # version of a training's saved state; states of other versions are not restored
# Bytes of images gathered at a time: few enough for the CPU's caches, enough to outweigh the launch of a CUDA kernel.
_GATHERED = {"cpu": 2**21, "cuda": 2**28}
Report = Callable[["EpochReport"], None]


class Engine:
    """The training of every seed on sets of its own; an interrupted one continues from its checkpoints.

    Args:
        ensemble: the architecture.
        data: splits on the device: "train" and "test", and "validation" unless `fit` is told which examples stop it.
        seeds: one per member.
        settings: how to train.
        checkpoints: where unfinished trainings are saved; None for nowhere.

    Attributes:
        orders: each seed's permutation of the training examples, [S, N]; prefixes of a row are its training sets.
        stacking: how many seeds train at once (`train.stacking_rule`).

    Raises:
        ValueError: train.stack=all with an architecture that cannot be stacked.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        data: Mapping[str, DeviceImages],
        seeds: Sequence[int],
        settings: TrainSettings,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        keep_freed_memory()
        self.ensemble, self.data, self.seeds, self.settings = ensemble, data, seeds, settings
        self.checkpoints = checkpoints
        train = data["train"]
        self.orders = torch.stack([permutation(seed, len(train)) for seed in seeds]).to(train.labels.device)
        self.stacking = choose(ensemble, len(seeds), train, settings)
        if len(seeds) > 1:
            log.info("seeds are trained %s: %s", self.stacking.how, self.stacking.why)

    @classmethod
    def of_run(cls, prepared: PreparedTraining, run: Run) -> Self:
        """Return the training of a run's seeds, with checkpoints in its directory."""
        checkpoints = Checkpoints(run.directory, prepared.settings.checkpoint_every_s, run.require_lease)
        return cls(prepared.ensemble, prepared.data, prepared.seeds, prepared.settings, checkpoints)

    def fit(
        self, subsets: Tensor, report: Report, held_out: Tensor | None = None, counterparts: Counterparts | None = None
    ) -> "Fit":
        """Train every seed on its own subset of the training split, as the function `fit`.

        Args:
            subsets: positions in the training split, [S, n].
            report: called after every evaluation.
            held_out: positions in the training split of the examples for early stopping, [S, m]; by default early
                stopping uses the validation split.
            counterparts: samples whose losses are followed along the training.
        """
        splits = self.data["train"], self.data["validation" if held_out is None else "train"]
        sets = TrainingSets(self.seeds, subsets, *splits, held_out, counterparts or {})
        stack, checkpoints = self.stacking.stack, self.checkpoints
        return fit(self.ensemble, sets, self.settings, report, stack=stack, checkpoints=checkpoints)

    def delete_checkpoints(self, n: int) -> None:
        """Delete the checkpoints of trainings on n fitted examples."""
        if self.checkpoints is not None:
            self.checkpoints.delete(f"{n}-")


@dataclass(frozen=True)
class TrainingSets:
    """The members of an ensemble, and the examples that train and stop each.

    Attributes:
        seeds: one per member, distinct.
        subsets: positions in `train`, [S, n].
        train: training split.
        validation: split for early stopping.
        held_out: positions in `validation` that stop each member, [S, m]; None for all.
        counterparts: samples whose losses are followed along the training, by name (`train.matched_sample_losses`).
    """

    seeds: Sequence[int]
    subsets: Tensor
    train: DeviceImages
    validation: DeviceImages
    held_out: Tensor | None = None
    counterparts: Counterparts = field(default_factory=dict)

    def of(self, members: slice) -> "TrainingSets":
        """Return the sets of some members."""
        held_out = None if self.held_out is None else self.held_out[members]
        return replace(self, seeds=self.seeds[members], subsets=self.subsets[members], held_out=held_out)


def fit(
    ensemble: Ensemble,
    sets: TrainingSets,
    settings: TrainSettings,
    report: Report = lambda _: None,
    *,
    stack: int | None = None,
    checkpoints: Checkpoints | None = None,
) -> "Fit":
    """Train one member per seed, each on its own subset of the training split, until it stops improving.

    All random draws come from generators seeded by the member's seed and subset size, so that a member in a stack
    computes what it would compute alone.

    Args:
        ensemble: the architecture.
        sets: members and their data.
        settings: how to train.
        report: called after every evaluation.
        stack: members that train together as one network; by default all, or one if the model cannot be stacked.
        checkpoints: where unfinished trainings are saved and restored from; signals then wait for the save.

    Raises:
        NonFiniteLossError: a training diverged; names the size, seed, epoch and learning rate.
        MemoryExhaustedError: names the setting to lower.
    """
    count, n = sets.subsets.shape
    stack = (count if ensemble.model.stackable else 1) if stack is None else stack
    stacks = -(-count // stack)
    trainings: list[Training] = []
    for i in range(stacks):
        training = Training(ensemble, sets.of(slice(i * stack, (i + 1) * stack)), settings)
        about = len(training.seeds), (i, stacks), sum(earlier.epoch for earlier in trainings)
        with checkpoints.continued(f"{n}-{i}", training, keep=stacks > 1) if checkpoints else nullcontext():
            for validation_bits in training.run():
                report(EpochReport(training.epoch, validation_bits, training.epochs_left, *about))
        trainings.append(training)
    return Fit.of(ensemble, trainings, stack)


class Learner:
    """Members of one stack, their weights and their optimiser.

    Args:
        ensemble: the architecture.
        initial: weights of the S members.
        train: what they learn.
        settings: of the optimiser, and batch size.
        average_power: of `ScheduleFree`.

    Attributes:
        before_step: called before every step; `Checkpoints.continued` sets it to a function that saves the state when
            due, and that may raise.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        initial: Weights,
        train: DeviceImages,
        settings: TrainSettings,
        *,
        average_power: float = 0.0,
    ) -> None:
        self.ensemble, self.train, self.settings = ensemble, train, settings
        options = ScheduleFreeSettings(
            lr=settings.lr,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            warmup_steps=settings.warmup_steps,
            average_power=average_power,
        )
        self.optimizer = ScheduleFree(initial, options, ensemble.model.learning_rates())
        self.before_step: Callable[[], None] = lambda: None
        self._gradients = self._graphed_gradients()

    def learn(self, draws: Draws, first: int = 0) -> Iterator[Tensor]:
        """Take the steps from number `first` on; nothing here waits for the device.

        Args:
            draws: what each step is taken on, `positions` in the training split.
            first: number of the first step to take.

        Yields:
            the members' losses [S] in nats on a step's batch, once the step is taken; on a GPU the next step overwrites
            them.

        Raises:
            MemoryExhaustedError: says which setting to lower.
        """
        with advice("training", batch_size=self.settings.batch_size, stack=self.settings.stack):
            for x, z, factors in self._batches(draws, first):
                self.before_step()
                losses, gradients = self._gradients(x, z, factors)
                self.optimizer.step(gradients)
                yield losses

    def _batches(self, draws: Draws, first: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield images [S, B, C, H, W], labels and factors, step by step; several batches gathered at a time."""
        index = draws.positions
        batch_bytes = index[0].numel() * math.prod(self.train.image_shape) * self.train.images.element_size()
        together = max(1, _GATHERED.get(index.device.type, 0) // batch_bytes)
        for start in range(first, len(index), together):
            steps = slice(start, start + together)
            yield from zip(*self.train.augmented(index[steps], draws.views[steps]), draws.factors[steps], strict=True)

    def _graphed_gradients(self) -> GraphedFunction[tuple[Tensor, Sequence[Tensor]]]:
        return GraphedFunction(lambda *batch: self.ensemble.gradients(self.optimizer.weights, *batch))


class Training(Learner):
    """A stack of members, trained from initial weights to the best ones; members that stop leave the stack."""

    def __init__(self, ensemble: Ensemble, sets: TrainingSets, settings: TrainSettings) -> None:
        seeds, subsets, train = sets.seeds, sets.subsets, sets.train
        self.n = subsets.shape[1]
        initial = ensemble.initial_weights([generator(seed, self.n, "init") for seed in seeds], subsets.device)
        super().__init__(ensemble, initial, train, settings)
        self.seeds, self.subsets, self.validation, self.held_out = seeds, subsets, sets.validation, sets.held_out
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

    def run(self) -> Iterator[list[float]]:
        """Train until every member has stopped, from one evaluation to the next: see `evaluate`."""
        if not self.stopping[0].curve.epoch:  # no evaluation yet: `curve.epoch` lists one epoch per evaluation
            self._follow_counterparts()
            self.evaluate()
        while self.active:
            self.run_epoch()
            if self.epoch % self.settings.eval_every == 0 or self.epoch == self.settings.max_epochs:
                yield self.evaluate()

    def run_epoch(self) -> None:
        """Train every member for one pass over its training set, without waiting for the device."""
        draws = self.order.draw(self.active, self.subsets.device)
        members = torch.tensor(self.active, device=self.subsets.device)[:, None]
        in_split = Draws(self.subsets[members, draws.positions], draws.views, draws.factors)
        for losses in self.learn(in_split, self.step):
            self._loss_sum += losses
            self._losses_summed += 1
            self.step += 1
            self._follow_counterparts()
        self.step = 0
        self.epoch += 1

    def evaluate(self) -> list[float]:
        """Score the averaged weights on the validation split, save the best ones and drop members that stop.

        Returns:
            The validation loss in bits of each member that was still training before the evaluation.
        """
        averaged = self.optimizer.averaged()
        held_out = None if self.held_out is None else self.held_out[self.active]
        validation_bits = self.ensemble.score(averaged, self.validation, held_out).bits.tolist()
        improved, stopped, going = [], [], []
        for position, (member, train_bits) in enumerate(zip(self.active, self._train_bits(), strict=True)):
            loss = validation_bits[position]
            self._require_finite(member, train_bits, loss)
            if self.stopping[member].update(self.epoch, train_bits, loss):
                improved.append(position)
            (stopped if self.stopping[member].curve.ended else going).append(position)
        self._copy(self.best, averaged, improved)
        self._copy(self.last, averaged, stopped)
        if stopped:
            self._follow_counterparts(always=True)
            self._keep(going)
        self._loss_sum.zero_()
        self._losses_summed = 0
        return validation_bits

    def _train_bits(self) -> list[float | None]:
        """Return each member's mean training loss since the last evaluation, on augmented batches, in bits."""
        if not self._losses_summed:
            return [None] * len(self.active)
        return (self._loss_sum / (self._losses_summed * math.log(2))).tolist()

    def _require_finite(self, member: int, train_bits: float | None, validation_bits: float) -> None:
        if math.isfinite(validation_bits) and math.isfinite(train_bits or 0.0):
            return
        raise NonFiniteLossError(
            f"the loss is not finite (training {train_bits}, validation {validation_bits} bits) at training size "
            f"{self.n}, seed {self.seeds[member]}, epoch {self.epoch}, learning rate "
            f"{self.settings.lr:g}: lower train.lr or raise train.warmup_steps"
        )

    def _copy(self, stack: Weights, averaged: Weights, positions: list[int]) -> None:
        """Copy the averaged weights at these positions among the active members to those members' rows of `stack`."""
        if not positions:
            return
        device = self.subsets.device
        source = torch.tensor(positions, device=device)
        target = torch.tensor([self.active[position] for position in positions], device=device)
        for name, weight in averaged.items():
            stack[name][target] = weight[source]

    def _keep(self, positions: list[int]) -> None:
        """Keep only the members at these positions among the active ones."""
        self.active = [self.active[position] for position in positions]
        if self.active:
            members = torch.tensor(positions, device=self.subsets.device)
            self.optimizer.keep_members(members)
            self._loss_sum = self._loss_sum[members]
        self._gradients = self._graphed_gradients()  # the weights have moved, or no graph is needed any more

    def _follow_counterparts(self, *, always: bool = False) -> None:
        """Note losses on counterparts if this optimiser step is one of those chosen, or a member stops."""
        step = self.epoch * self.order.steps + self.step
        if always or self.followed.due(step):
            self.followed.note(step, self.active, self.optimizer.averaged())

    @property
    def finished(self) -> bool:
        return not self.active

    @property
    def epochs_left(self) -> int:
        """A lower bound on the epochs until every member has stopped."""
        return max((self.stopping[member].epochs_left for member in self.active), default=0)

    def __str__(self) -> str:
        return f"training size {self.n}, epoch {self.epoch}"

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return tensors by name and JSON-like values, from which `restore` continues without changing any number."""
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
        """Continue from the state of a training with the same data and settings; return False if its members differ."""
        if values.get("members") != self._members:
            return False
        device = self.subsets.device
        for kind, weights in (("best", self.best), ("last", self.last)):
            for name, weight in weights.items():
                weight.copy_(tensors[f"{kind}.{name}"])
        for stopping, evaluations in zip(self.stopping, values["evaluations"], strict=True):
            for evaluation in zip(*evaluations, strict=True):
                stopping.update(*evaluation)
        self._keep(values["active"])  # members, which equal positions here: a new training has all members active
        if self.active:
            self.optimizer.restore(tensors, values["optimizer"])
        self.order.restore(tensors)
        self._loss_sum, self._losses_summed = tensors["loss_sum"].to(device), values["losses_summed"]
        self.epoch, self.step = values["epoch"], values["step"]
        self.followed.rows = values.get("counterparts", [])
        return True

    @property
    def _members(self) -> dict[str, Any]:
        """The identity of the members: a saved state fits these alone."""
        return {"format": _FORMAT, "seeds": list(self.seeds), "n": self.n}


class NonFiniteLossError(RuntimeError):
    """A training that diverged."""


@dataclass(frozen=True)
class EpochReport:
    """The state of a training after an evaluation.

    Attributes:
        epoch: epochs finished.
        validation_bits: latest validation loss of each member that was still training.
        epochs_left: lower bound on the epochs until every member has stopped; 0 once all have.
        members: number of members in the stack at the start.
        stack: index of this stack, from 0, and the number of stacks.
        epochs_elsewhere: epochs finished by the earlier stacks, summed.
    """

    epoch: int
    validation_bits: Sequence[float]
    epochs_left: int
    members: int
    stack: tuple[int, int]
    epochs_elsewhere: int

    @property
    def mean_epochs(self) -> tuple[float, float]:
        """Epochs finished and a lower bound on those left, averaged over stacks.

        Stacks not begun yet are assumed to take as many epochs as the mean of the others.
        """
        i, stacks = self.stack
        done = self.epochs_elsewhere + self.epoch
        at_the_end = (done + self.epochs_left) * stacks / (i + 1)
        return done / stacks, (at_the_end - done) / stacks

    def __str__(self) -> str:
        going = len(self.validation_bits)
        i, stacks = self.stack
        # Seeds train in one stack or in stacks of one (`train.stacking_rule`): several stacks are seeds.
        which = f"seed {i + 1} of {stacks}" if stacks > 1 else f"{going} of {self.members} seeds training"
        losses = [f"{bits:.3f}" for bits in self.validation_bits]
        shown = " ".join(losses) if going <= 5 else f"{min(losses)} to {max(losses)}"
        return f"epoch {self.epoch}: validation {shown} bits, {which}"


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
        scored = []
        for rows, stack, part in self._stacks(weights or self.best, index):
            nats = tempered(None if temperatures is None else temperatures[rows])
            scored.append(self.ensemble.score(stack, images, part, nats=nats))
        return Scores(*map(torch.cat, zip(*scored, strict=True)))

    def temperatures(self, images: DeviceImages, index: Tensor | None = None) -> Tensor:
        """Fit temperatures as `Ensemble.temperatures`, of the best weights."""
        stacks = self._stacks(self.best, index)
        return torch.cat([self.ensemble.temperatures(stack, images, part) for _, stack, part in stacks])

    def _stacks(self, weights: Weights, index: Tensor | None) -> Iterator[tuple[slice, Weights, Tensor | None]]:
        for first in range(0, len(self.curves), self.stack):
            rows = slice(first, first + self.stack)
            stack = {name: weight[rows] for name, weight in weights.items()}
            yield rows, stack, index if index is None or index.ndim == 1 else index[rows]
