"""The replay code: one network per seed codes every batch of labels before it learns it, with streams over the past.

Bornschein, Li & Hutter (2022), "Sequential Learning of Neural Networks for Prequential MDL".
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from erasure.progress import Display, Show, hidden
from harness.example_bits import save_coded_bits, save_test_bits
from harness.logger import Logger
from harness.result_fields import Timing
from harness.run_directory import Run
from mdl.coded_result import logged, result_of_curve
from mdl.result import MdlResult, Point
from mdl.settings import MdlConfig, ReplaySettings
from mdl.temperature_mixture import TemperatureMixture
from mdl.training_sizes import chunk_sizes
from train.checkpoint import Checkpoints, State
from train.device_images import DeviceImages
from train.ensemble import Ensemble
from train.prepared_training import PreparedTraining
from train.randomness import Draws, drawn, generator, permutations, stacked
from train.settings import TrainSettings
from train.trainer import NonFiniteLossError, Trainer

_AVERAGE_POWER = 8.0  # our choice: the averaging window grows with the data (docs/codes.md)


def replay(prepared: PreparedTraining[MdlConfig], run: Run, logger: Logger) -> MdlResult:
    """Code every seed's labels in its order, each batch before it is learnt; return the result."""
    settings = prepared.experiment.config.mdl
    sizes = chunk_sizes(len(prepared.data["train"]), settings, prepared.num_classes)
    with Display(run.id) as display:
        coded = replay_code(
            prepared.ensemble,
            prepared.data,
            prepared.seeds,
            prepared.settings,
            settings.replay,
            sizes=sizes,
            stack=prepared.stacking.stack,
            checkpoints=prepared.checkpoints(run),
            on_progress=display.update,
        )
    starts = torch.tensor([0, *coded.ends])
    trained_on = starts[:-1].repeat_interleave(starts.diff()).expand_as(coded.orders)
    save_coded_bits(run, prepared.experiment, coded.orders, coded.bits, trained_on)
    save_test_bits(run, prepared.seeds, coded.test_bits)
    total_bits, timing = coded.bits.sum(1).tolist(), Timing(stacking=asdict(prepared.stacking))
    return logged(result_of_curve(prepared, coded.curve, sizes, total_bits, timing=timing), logger)


@dataclass(frozen=True)
class ReplayCode:
    """The replay code of a training split's labels, for S seeds.

    Attributes:
        orders: the order in which each seed codes the examples, [S, N].
        ends: number of labels coded by the end of each batch.
        bits: cost of each label in coding order, [S, N] float64.
        test_bits: cost of each test label once everything is learnt, [S, M].
        curve: losses by size.
    """

    orders: Tensor
    ends: Sequence[int]
    bits: Tensor
    test_bits: Tensor
    curve: Sequence[Point]


def replay_code(
    ensemble: Ensemble,
    data: Mapping[str, DeviceImages],
    seeds: Sequence[int],
    training: TrainSettings,
    options: ReplaySettings,
    *,
    sizes: Sequence[int],
    stack: int | None = None,
    checkpoints: Checkpoints | None = None,
    on_progress: Show = hidden,
) -> ReplayCode:
    """Code the labels in each seed's order, each batch before it is learnt.

    Args:
        ensemble: the architecture.
        data: splits on the device: "train" and "test".
        seeds: one per member.
        training: settings of the optimizer, and batch size; there is no early stopping.
        options: options of the replay code.
        sizes: numbers of labels after which the members are scored, ascending, ending in N.
        stack: number of members that train as one network; by default all, or one if the model has no stacked layers.
        checkpoints: where unfinished codes are saved; None for nowhere.
        on_progress: called with the share done, from 0 to 1, and the current task.

    Raises:
        NonFiniteLossError: the cost of a label is not finite.
    """
    orders = permutations(seeds, len(data["train"])).to(data["train"].labels.device)
    stack = (len(seeds) if ensemble.model.stackable else 1) if stack is None else stack
    trainers: list[ReplayTrainer] = []
    for first in range(0, len(seeds), stack):
        members = slice(first, first + stack)
        trainer = ReplayTrainer(ensemble, data, seeds[members], orders[members], training, options, sizes=sizes)

        def show(trainer: ReplayTrainer = trainer, first: int = first) -> None:
            done = (first + len(trainer.seeds) * trainer.known / sizes[-1]) / len(seeds)
            bits = float(trainer.bits[:, : trainer.known].mean())
            on_progress(done, f"label {trainer.known:,} of {sizes[-1]:,}: {bits:.3f} bits per label so far")

        trainer.on_batch = show
        name = f"replay-{len(trainers)}"
        with checkpoints.continued(name, trainer, keep=stack < len(seeds)) if checkpoints else nullcontext():
            trainer.run()
        trainers.append(trainer)
    bits, test_bits = (torch.cat([getattr(one, name) for one in trainers]).cpu() for name in ("bits", "test_bits"))
    scores = torch.cat([trainer.scores for trainer in trainers], 1)
    return ReplayCode(orders.cpu(), trainers[0].ends, bits, test_bits, _curve(bits, scores, sizes, options))


class ReplayTrainer(Trainer):
    """A stack of members that code each batch of labels in their orders, and then learn it.

    A round is a batch of labels. For every new example, its steps also take the next example of each of K streams:
    K + 1 examples in all, in batches of `train.batch_size`.

    Args:
        ensemble: the architecture.
        data: splits on the device: "train" and "test".
        seeds: one per member.
        orders: the order in which each member codes the training split, [S, N].
        settings: settings of the optimizer, and batch size; there is no early stopping.
        options: options of the replay code.
        sizes: numbers of labels after which the members are scored, ending in N. A batch ends at each size.

    Attributes:
        bits: cost of each label in each member's order, [S, N] float64; 0 for labels not yet coded.
        scores: test loss in bits, test accuracy, and loss in bits on the coded labels, after each size, [3, S, sizes].
        test_bits: cost of each test label at the latest size, [S, M].
        known: number of labels coded so far.
        ends: number of labels coded by the end of each batch.
        on_batch: called after each batch has been coded and learnt.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        data: Mapping[str, DeviceImages],
        seeds: Sequence[int],
        orders: Tensor,
        settings: TrainSettings,
        options: ReplaySettings,
        *,
        sizes: Sequence[int],
    ) -> None:
        initial = ensemble.initial_weights([generator(seed, "replay", "init") for seed in seeds], orders.device)
        super().__init__(ensemble, seeds, initial, data["train"], settings, average_power=_AVERAGE_POWER)
        self.test, self._options, self._sizes = data["test"], options, sizes
        self._orders, self._planned = orders, orders.cpu()
        self.ends = batch_ends(sizes, options.batch)
        self._streams = [stream_positions(len(self.ends), options.streams, seed) for seed in seeds]
        self.mixture = TemperatureMixture(len(seeds), orders.device)
        self.bits = torch.zeros(orders.shape, dtype=torch.float64, device=orders.device)
        self.scores = torch.zeros(3, len(seeds), len(sizes), dtype=torch.float64, device=orders.device)
        self.test_bits = torch.zeros(len(seeds), len(self.test), device=orders.device)
        self.known = 0
        self.on_batch: Callable[[], object] = lambda: None

    def __str__(self) -> str:
        return f"label {self.known:,} of {self._sizes[-1]:,}"

    def begin_round(self) -> Draws:
        """Code the next batch of labels, unless it is coded already, and draw the steps that learn it, on the CPU."""
        if self.known < self.ends[self.round]:
            self._code(self.ends[self.round])
        starts, batch = torch.tensor([0, *self.ends[:-1]]), self._options.batch
        members = []
        for seed, order, streams in zip(self.seeds, self._planned, self._streams, strict=True):
            first = starts[torch.cat([torch.tensor([self.round]), streams[self.round]])]
            read = (first + torch.arange(batch)[:, None]) % self.known  # [batch, K + 1]
            steps = math.ceil(read.numel() / self.settings.batch_size)
            size = read.numel() // steps
            positions = order[read.flatten()[: steps * size].view(steps, size)]
            views, depth = (generator(seed, "replay", purpose, self.round) for purpose in ("views", "depth"))
            members.append(drawn(positions, self.examples.num_views, self.ensemble.drop_rates, views, depth))
        return stacked(members, self._orders.device)

    def end_round(self) -> None:
        """Score the members if a size is reached; finish them after the last batch."""
        if self.known in self._sizes:
            self._score(self._sizes.index(self.known))
        if self.round == len(self.ends):
            self._keep([])
        self.on_batch()

    def _code(self, end: int) -> None:
        """Code the labels up to number `end` with the averaged weights learnt from the labels before them."""
        index = self._orders[:, self.known : end]
        scored = self.ensemble.score(self.optimizer.averaged(), self.examples, index, nats=self.mixture.coded)
        self._require_finite(scored.bits, end)
        self.bits[:, self.known : end] = scored.example_bits
        self.known = end

    def _score(self, i: int) -> None:
        """Record the scores of the averaged weights, with the current calibration, at size number i."""
        weights, known = self.optimizer.averaged(), self._orders[:, : self.known]
        test = self.ensemble.score(weights, self.test, nats=self.mixture.nats)
        train = self.ensemble.score(weights, self.examples, known, nats=self.mixture.nats)
        self.scores[:, :, i] = torch.stack([test.bits, test.accuracy, train.bits])
        self.test_bits.copy_(test.example_bits)

    def _require_finite(self, bits: Tensor, end: int) -> None:
        if bits.isfinite().all():
            return
        seed = self.seeds[int(bits.isfinite().logical_not().nonzero()[0])]
        raise NonFiniteLossError(
            f"labels up to number {end:,} cost a number of bits that is not finite: seed {seed}, learning rate "
            f"{self.settings.lr:g}: lower train.lr or raise train.warmup_steps"
        )

    @property
    def _members(self) -> dict[str, Any]:
        return {**super()._members, "sizes": list(self._sizes)}

    @property
    def _progress(self) -> dict[str, Tensor]:
        progress = {"bits": self.bits, "scores": self.scores, "test_bits": self.test_bits}
        return progress | {"log_weights": self.mixture.log_weights}

    def _own_state(self) -> State:
        return self._progress, {"known": self.known}

    def _restore_own(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        for name, tensor in self._progress.items():
            tensor.copy_(tensors[name])
        self.known = values["known"]


def batch_ends(sizes: Sequence[int], batch: int) -> list[int]:
    """Return the ends of as few batches as possible, nearly equal, of at most `batch` labels; none crosses a size."""
    ends = []
    for before, n in itertools.pairwise([0, *sizes]):
        count = math.ceil((n - before) / batch)
        ends += [before + (n - before) * (i + 1) // count for i in range(count)]
    return ends


def stream_positions(batches: int, streams: int, seed: int) -> Tensor:
    """Draw the batch that each stream reads after batch t is coded, [batches, streams]: uniform over 0..t.

    A stream reads batch after batch. At t it starts again at 0 with probability 1 / (t + 1) (the paper's rule), so its
    position stays uniform over 0..t. The positions do not depend on the data.
    """
    t = torch.arange(batches)[:, None]
    again = torch.rand(batches, streams, generator=generator(seed, "replay", "streams")) < 1 / (t + 1)
    return t - torch.where(again, t, 0).cummax(0).values


def _curve(bits: Tensor, scores: Tensor, sizes: Sequence[int], options: ReplaySettings) -> list[Point]:
    """Return the learning curve: a point for each size, with the losses of all seeds."""
    points = []
    for i, (n, following) in enumerate(itertools.zip_longest(sizes, sizes[1:])):
        test, accuracy, train = scores[:, :, i].tolist()
        points.append(
            Point(
                n=n,
                ce_next_bits=bits[:, n:following].mean(1).tolist() if following else None,
                ce_test_bits=test,
                ce_train_bits=train,
                test_accuracy=accuracy,
                epochs=[options.streams + 1] * len(bits),
            )
        )
    return points
