"""Block-wise prequential code: train afresh on growing prefixes of the data, and sum the cost of the labels in bits."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from erasure.images import positions, whole_images
from erasure.progress import Display
from erasure.store.cache import Cache
from harness.example_bits import CodedBits, save_coded_bits, save_test_bits
from harness.job import Job
from harness.logger import Logger, log_loss_curves
from harness.loss_curves import CurveRow, sharp_drops
from harness.result import as_json, parsed
from harness.run import Run
from harness.trained import Coded, Point, Timing
from mdl.chunks import MdlConfig, chunk_sizes
from mdl.codelength import log_point, log_summary, of_curve, online_code_bits
from train.early_stopping import endings, warn_of_unlike_validation
from train.engine import Engine, EpochReport
from train.prepare import PreparedTraining
from train.progress import TrainingProgress
from train.whole import save_weights


def prequential(prepared: PreparedTraining[MdlConfig], run: Run, logger: Logger) -> Coded:
    """Train on every chunk size and score each model on the next chunk and on the test split.

    Finished chunk sizes of an earlier, interrupted attempt, or of another process, are taken from the run's directory.

    Returns:
        The command's share of the result.
    """
    with Display(run.id) as display:
        sizes = _Sizes(prepared, run, display)
        for i in sizes.turns:
            with run.claim(sizes.name(i), wait=True):
                log_point(logger, sizes.train(i).point)
    parts = [sizes.train(i) for i in range(len(sizes.sizes))]
    run.save_curves(row for part in parts for row in part.losses)
    save_coded_bits(run, coded(prepared, sizes.sizes, sizes.engine.orders.cpu(), parts))
    result = summarise(prepared, sizes.sizes, parts)
    log_loss_curves(logger, parts[-1].losses)  # of the whole dataset, averaged over the seeds still training
    log_summary(logger, result)
    return replace(result, timing=Timing(stacking=asdict(sizes.engine.stacking)))


def share(prepared: PreparedTraining[MdlConfig], run: Run) -> bool:
    """Train the chunk sizes that no other process trains; whether all are trained then."""
    with Display(run.id) as display:
        sizes = _Sizes(prepared, run, display)
        for i in sizes.turns:
            with run.claim(sizes.name(i), wait=False) as ours:
                # in this order: who has written the result deletes the parts
                if ours and sizes.trained(i) is None and run.result is None:
                    sizes.train(i)
        return all(sizes.trained(i) for i in sizes.turns) or run.result is not None


class _Sizes:
    """The trainings of a run, one for each chunk size; what is trained is kept in the run's directory.

    Attributes:
        sizes: numbers of examples, ascending.
        turns: their indices, in the order in which they are trained.
    """

    def __init__(self, prepared: PreparedTraining[MdlConfig], run: Run, display: Display) -> None:
        total = len(prepared.data["train"])
        settings = prepared.job.config.mdl
        if settings.validation == "given":
            instead = "mdl.validation=prefix stops them by training images"
            warn_of_unlike_validation(prepared.dataset.certificate, instead)
        self.sizes = chunk_sizes(total, settings)
        indices = range(len(self.sizes))
        self.turns = indices if settings.order == "smallest_first" else indices[::-1]
        self._following = [*self.sizes[1:], total]
        self._bench, self._run, self._display = prepared, run, display
        self._work = TrainingProgress(self.sizes, prepared.settings)
        self._trained: dict[int, SizeTrained] = {}

    @functools.cached_property
    def engine(self) -> Engine:
        return Engine(self._bench, self._run)

    def name(self, i: int) -> str:
        """Return the name of the part of size number i."""
        return str(self.sizes[i])

    def trained(self, i: int) -> "SizeTrained | None":
        """Return the part of size number i, or None if it is not trained."""
        if i not in self._trained and (kept := self._run.kept(self.name(i))) is not None:
            self._finish(i, parsed(SizeTrained, kept))
        return self._trained.get(i)

    def train(self, i: int) -> "SizeTrained":
        """Return the part of size number i, trained if it is not yet."""
        if i not in self._trained:
            self._finish(i, parsed(SizeTrained, self._run.step(self.name(i), lambda: as_json(self._train(i)))))
            self.engine.finished(self.sizes[i] - self._bench.job.config.mdl.own_validation(self.sizes[i]))
        return self._trained[i]

    def _train(self, i: int) -> "SizeTrained":
        n, following, orders = self.sizes[i], self._following[i], self.engine.orders

        def show(report: EpochReport) -> None:
            done = self._work.share(i, *report.mean_epochs)
            self._display.update(done, f"chunk {i + 1}/{len(self.sizes)} (n = {n:,}) {report}")

        return train_size(self._bench, self._run, self.engine, orders[:, :n], orders[:, n:following], show)

    def _finish(self, i: int, part: "SizeTrained") -> None:
        self._trained[i] = part
        self._work.finish(i, max(part.point.epochs))


@dataclass(frozen=True)
class SizeTrained:
    """One training size's scores and loss curves, an entry per seed: kept while the run is unfinished.

    Attributes:
        coded_bits: what each label up to the next size cost, in the seed's order.
    """

    point: Point
    losses: list[CurveRow]
    coded_bits: list[list[float]] | None = None


def train_size(
    prepared: PreparedTraining[MdlConfig],
    run: Run,
    engine: Engine,
    known: Tensor,
    following: Tensor,
    show: Callable[[EpochReport], None],
) -> SizeTrained:
    """Train every seed on its `known` examples [S, n] and score it on those that follow [S, m], m >= 0."""
    train, own = prepared.data["train"], prepared.job.config.mdl.own_validation(known.shape[1])
    held = known[:, -own:] if own else None
    fitted = engine.fit(known[:, : known.shape[1] - own], show, held)
    test = fitted.score(prepared.data["test"])
    coded = calibrated = temperatures = None
    if following.numel():
        temperatures = fitted.temperatures(train, held) if own else fitted.temperatures(prepared.data["validation"])
        coded = fitted.score(train, following)
        calibrated = fitted.score(train, following, temperatures=temperatures)
    else:  # the last size, which has nothing left to predict
        save_test_bits(run, prepared.seeds, test.example_bits)
        save_weights(prepared, run, fitted)
    point = Point(
        n=known.shape[1],
        ce_next_bits=coded and coded.bits.tolist(),
        ce_next_calibrated_bits=calibrated and calibrated.bits.tolist(),
        temperature=None if temperatures is None else temperatures.tolist(),
        ce_test_bits=test.bits.tolist(),
        ce_train_bits=fitted.score(train, known).bits.tolist(),
        ce_validation_bits=[curve.best_validation_bits for curve in fitted.curves],
        test_accuracy=test.accuracy.tolist(),
        **endings(fitted.curves),
    )
    rows = [row for curve in fitted.curves for row in curve.rows(known.shape[1])]
    return SizeTrained(point, rows, coded and [[round(one, 6) for one in own] for own in coded.example_bits.tolist()])


def coded(prepared: PreparedTraining, sizes: Sequence[int], orders: Tensor, parts: Sequence[SizeTrained]) -> CodedBits:
    """Return the cost of each training label, the first size's by the uniform code; `orders` is [S, N]."""
    uniform = torch.full((len(orders), sizes[0]), math.log2(prepared.num_classes))
    bits = torch.cat([uniform, *(torch.tensor(part.coded_bits) for part in parts[:-1])], 1)
    trained_on = torch.zeros(orders.shape[1], dtype=torch.int32)
    for n in sizes[:-1]:
        trained_on[n:] = n
    return placed(prepared.job, orders, bits, trained_on.expand_as(orders))


def placed(job: Job, orders: Tensor, bits: Tensor, trained_on: Tensor) -> CodedBits:
    """Place costs of labels, [S, N] in each seed's order, at their examples' positions in the dataset."""
    source, cache = job.source, Cache(job.config.cache_dir)
    train = positions(source, whole_images(source, cache))["train"]
    return CodedBits.in_order(job.config.seeds, train.images, train.labels, orders, bits, trained_on)


def summarise(prepared: PreparedTraining, sizes: Sequence[int], parts: Sequence[SizeTrained]) -> Coded:
    """Compute codelengths per seed, the learning curve, the final loss and the sharpest fall on the way there."""
    curve = [part.point for part in parts]
    k, total = prepared.num_classes, sizes[-1]
    following = zip(*(point.ce_next_bits or () for point in curve[:-1]), strict=True)
    calibrated = [*zip(*(point.ce_next_calibrated_bits or () for point in curve[:-1]), strict=True)]
    result = of_curve(curve, [online_code_bits(sizes, ce_next, k) for ce_next in following])
    per_label = [online_code_bits(sizes, own, k) / total for own in calibrated] or None
    whole = [[row for row in parts[-1].losses if row.seed == seed] for seed in prepared.seeds]
    drop = sharp_drops(([row.epoch for row in own], [row.validation_loss_bits for row in own]) for own in whole)
    return replace(result, mdl=replace(result.mdl, calibrated_bits_per_sample=per_label), sharp_drop=drop)
