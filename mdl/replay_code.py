"""The replay code: one network per seed codes every batch of labels before it learns it, with streams over the past.

Bornschein, Li & Hutter (2022), "Sequential Learning of Neural Networks for Prequential MDL".
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from erasure.progress import Display
from harness.example_bits import bits_by_example, save_coded_bits, save_test_bits
from harness.logger import Logger
from harness.result_fields import Coded, Point, Timing
from harness.run_directory import Run
from mdl.coded_result import logged_result
from mdl.settings import MdlConfig, ReplaySettings
from mdl.temperature_mixture import TemperatureMixture
from mdl.training_sizes import chunk_sizes
from train.device_images import DeviceImages
from train.ensemble import Ensemble, Scores
from train.epoch_randomness import Draws, drawn, stacked
from train.prepared_training import PreparedTraining
from train.randomness import generator
from train.settings import TrainSettings
from train.training import Engine, Learner, NonFiniteLossError

_AVERAGE_POWER = 8.0  # ours: the past that weights are averaged over grows with the data (docs/codes.md)
_FORMAT = 1  # of a code's state; what an earlier version saved does not go on


def replay(prepared: PreparedTraining[MdlConfig], run: Run, logger: Logger) -> Coded:
    """Code every seed's labels in its order, each batch before it is learnt; the command's fields of the result."""
    settings, splits = prepared.job.config.mdl, prepared.data
    sizes = chunk_sizes(len(splits["train"]), settings, prepared.num_classes)
    engine, codes = Engine.of_run(prepared, run), list[ReplayCode]()
    stack, seeds = engine.stacking.stack, prepared.seeds
    with Display(run.id) as display:
        for first in range(0, len(seeds), stack):
            members = slice(first, first + stack)
            labels = ReplayLabels(seeds[members], engine.orders[members], splits["train"], splits["test"], sizes)
            code = ReplayCode(prepared.ensemble, labels, prepared.settings, settings.replay)
            assert engine.checkpoints is not None
            with engine.checkpoints.continued(f"replay-{len(codes)}", code, keep=stack < len(seeds)):
                for known in code.run():
                    done = (first + len(code.seeds) * known / sizes[-1]) / len(seeds)
                    bits = float(code.bits[:, :known].mean())
                    display.update(done, f"label {known:,} of {sizes[-1]:,}: {bits:.3f} bits per label so far")
            codes.append(code)
    _save_bits(prepared, run, engine.orders.cpu(), codes)
    save_test_bits(run, prepared.seeds, torch.cat([code.tested().example_bits for code in codes]))
    total_bits = [float(bits) for code in codes for bits in code.bits.sum(1)]
    result = logged_result(logger, _curve(codes, sizes, settings.replay), sizes, total_bits)
    return replace(result, timing=Timing(stacking=asdict(engine.stacking)))


@dataclass(frozen=True)
class ReplayLabels:
    """The labels that the members of a replay code code, and their orders.

    Attributes:
        seeds: one per member.
        orders: in which each member codes the training split, [S, N].
        train: training split.
        test: test split.
        sizes: numbers of labels after which the members are scored; batches end there. The last is N.
    """

    seeds: Sequence[int]
    orders: Tensor
    train: DeviceImages
    test: DeviceImages
    sizes: Sequence[int]


class ReplayCode(Learner):
    """A stack of members that code the labels of their orders, batch after batch, and then learn them.

    A member's steps take the next example of each of K streams, and of the new batch, in turn: (K + 1) examples for
    every new one, in batches of `train.batch_size`.

    Args:
        ensemble: the architecture.
        labels: what is coded.
        settings: of the optimiser, and batch size; nothing is stopped early.
        options: of the code.

    Attributes:
        bits: what each label has cost, in each member's order, [S, N] float64; 0 where it is not yet coded.
        scores: [3, S, sizes] after each: loss in bits and accuracy on the test split, loss in bits on what is known.
        known: number of labels that are coded.
        ends: of the batches, in numbers of labels.
    """

    def __init__(
        self, ensemble: Ensemble, labels: ReplayLabels, settings: TrainSettings, options: ReplaySettings
    ) -> None:
        seeds, orders, sizes = labels.seeds, labels.orders, labels.sizes
        initial = ensemble.initial_weights([generator(seed, "replay", "init") for seed in seeds], orders.device)
        super().__init__(ensemble, initial, labels.train, settings, average_power=_AVERAGE_POWER)
        self.seeds, self.test, self._options, self._sizes = seeds, labels.test, options, sizes
        self._orders, self._planned = orders, orders.cpu()
        self.ends = batch_ends(sizes, options.batch)
        self._streams = [stream_positions(len(self.ends), options.streams, seed) for seed in seeds]
        self.mixture = TemperatureMixture(len(seeds), orders.device)
        self.bits = torch.zeros(orders.shape, dtype=torch.float64, device=orders.device)
        self.scores = torch.zeros(3, len(seeds), len(sizes), dtype=torch.float64, device=orders.device)
        self.known = self._batch = self._step = 0  # labels coded; batches learnt; steps taken on the one being learnt

    @property
    def finished(self) -> bool:
        return self._batch == len(self.ends)

    def __str__(self) -> str:
        return f"label {self.known:,} of {self._sizes[-1]:,}"

    def run(self) -> Iterator[int]:
        """Code and learn what is left; yields the number of labels coded and learnt after each batch."""
        while not self.finished:
            if self.known < self.ends[self._batch]:
                self._code(self.ends[self._batch])
            for _ in self.learn(self._draws(), self._step):
                self._step += 1
            self._batch, self._step = self._batch + 1, 0
            if self.known in self._sizes:
                self._score(self._sizes.index(self.known))
            yield self.known

    def tested(self) -> Scores:
        """Score the averaged weights, calibrated as they are now, on the test split."""
        return self.ensemble.score(self.optimizer.averaged(), self.test, nats=self.mixture.nats)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return tensors and values with which `restore` goes on bit by bit."""
        tensors, numbers = self.optimizer.state()
        progress = {"known": self.known, "batch": self._batch, "step": self._step}
        return tensors | self._progress, {"members": self._members, "progress": progress, "optimizer": numbers}

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> bool:
        """Go on where another with the same data and options stood; False if it had other members."""
        if values.get("members") != self._members:
            return False
        self.optimizer.restore(tensors, values["optimizer"])
        for name, tensor in self._progress.items():
            tensor.copy_(tensors[name])
        self.known, self._batch, self._step = (values["progress"][key] for key in ("known", "batch", "step"))
        return True

    @property
    def _progress(self) -> dict[str, Tensor]:
        return {"bits": self.bits, "scores": self.scores, "log_weights": self.mixture.log_weights}

    @property
    def _members(self) -> dict[str, Any]:
        """The identity of the members: a saved state fits these alone."""
        return {"format": _FORMAT, "seeds": list(self.seeds), "sizes": list(self._sizes)}

    def _code(self, end: int) -> None:
        """Pay for the labels up to number `end` with what has been learnt of those before."""
        index = self._orders[:, self.known : end]
        scored = self.ensemble.score(self.optimizer.averaged(), self.train, index, nats=self.mixture.coded)
        self._require_finite(scored.bits, end)
        self.bits[:, self.known : end] = scored.example_bits
        self.known = end

    def _draws(self) -> Draws:
        """Plan the steps that follow the newest batch, on the CPU."""
        starts, batch = torch.tensor([0, *self.ends[:-1]]), self._options.batch
        members = []
        for seed, order, streams in zip(self.seeds, self._planned, self._streams, strict=True):
            first = starts[torch.cat([torch.tensor([self._batch]), streams[self._batch]])]
            read = (first + torch.arange(batch)[:, None]) % self.known  # [batch, K + 1]
            steps = math.ceil(read.numel() / self.settings.batch_size)
            size = read.numel() // steps
            positions = order[read.flatten()[: steps * size].view(steps, size)]
            views, depth = (generator(seed, "replay", purpose, self._batch) for purpose in ("views", "depth"))
            members.append(drawn(positions, self.train.num_views, self.ensemble.drop_rates, views, depth))
        return stacked(members, self._orders.device)

    def _score(self, i: int) -> None:
        """Note how the members stand at size number i."""
        test, weights = self.tested(), self.optimizer.averaged()
        train = self.ensemble.score(weights, self.train, self._orders[:, : self.known], nats=self.mixture.nats)
        self.scores[:, :, i] = torch.stack([test.bits, test.accuracy, train.bits])

    def _require_finite(self, bits: Tensor, end: int) -> None:
        if bits.isfinite().all():
            return
        seed = self.seeds[int(bits.isfinite().logical_not().nonzero()[0])]
        raise NonFiniteLossError(
            f"labels up to number {end:,} cost a number of bits that is not finite: seed {seed}, learning rate "
            f"{self.settings.lr:g}: lower train.lr or raise train.warmup_steps"
        )


def batch_ends(sizes: Sequence[int], batch: int) -> list[int]:
    """Return the ends of batches of at most `batch` labels: few, nearly equal, none across one of the sizes."""
    ends = []
    for before, n in itertools.pairwise([0, *sizes]):
        count = math.ceil((n - before) / batch)
        ends += [before + (n - before) * (i + 1) // count for i in range(count)]
    return ends


def stream_positions(batches: int, streams: int, seed: int) -> Tensor:
    """Draw the batch that each stream reads once batch t is coded, [batches, streams]: uniform over 0..t.

    A stream reads on, batch after batch, and at t starts again at 0 with probability 1 / (t + 1) (the paper's rule): if
    it stood uniformly over 0..t - 1, it stands so over 0..t. Which batches it reads does not depend on the data.
    """
    t = torch.arange(batches)[:, None]
    again = torch.rand(batches, streams, generator=generator(seed, "replay", "streams")) < 1 / (t + 1)
    return t - torch.where(again, t, 0).cummax(0).values


def _save_bits(prepared: PreparedTraining, run: Run, orders: Tensor, codes: Sequence[ReplayCode]) -> None:
    """Keep what every label cost; `orders` is [S, N]."""
    starts = torch.tensor([0, *codes[0].ends])
    trained_on = starts[:-1].repeat_interleave(starts.diff()).expand_as(orders)
    save_coded_bits(
        run, bits_by_example(prepared.job, orders, torch.cat([code.bits for code in codes]).cpu(), trained_on)
    )


def _curve(codes: Sequence[ReplayCode], sizes: Sequence[int], options: ReplaySettings) -> list[Point]:
    """Return all members' losses by size, an entry per seed."""
    bits, scores = torch.cat([code.bits for code in codes]), torch.cat([code.scores for code in codes], 1)
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
