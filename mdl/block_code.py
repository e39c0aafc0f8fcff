"""Block-wise prequential code: train afresh on growing prefixes of the data, and sum the cost of the labels in bits."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from erasure.progress import Display
from harness.example_bits import CodedBits, bits_by_example, save_coded_bits, save_test_bits
from harness.job import Job, split_positions
from harness.logger import Logger, log_loss_curves
from harness.loss_curves import CurveRow, endings, sharp_drops
from harness.result import as_json, parsed
from harness.result_fields import Coded, Point, Timing
from harness.run_directory import Run
from mdl.coded_result import log_point, log_summary, result_of_curve
from mdl.codelength_and_power_law import online_code_bits
from mdl.settings import MdlConfig
from mdl.training_sizes import chunk_sizes, warn_of_few
from train import prepared_training
from train.early_stopping import warn_of_unlike_validation
from train.prepared_training import PreparedTraining
from train.progress_estimate import TrainingProgress
from train.save_weights import save_weights
from train.training import Engine, EpochReport


def load(job: Job[MdlConfig]) -> PreparedTraining[MdlConfig]:
    """Prepare the data and the architecture, once the training sizes are known to fit.

    Raises:
        ValueError: as `chunk_sizes`.
    """
    labels, settings = split_positions(job)["train"].labels, job.config.mdl
    k = len(labels.unique())
    sizes = chunk_sizes(len(labels), settings, k)
    if settings.code == "blocks":  # the other scores a network that it trains on all
        warn_of_few(sizes, k)
    return prepared_training.load(job)


def block_code(prepared: PreparedTraining[MdlConfig], run: Run, logger: Logger) -> Coded:
    """Train on every chunk size and score each model on the next chunk and on the test split.

    Finished chunk sizes of an earlier, interrupted attempt, or of another process, are taken from the run's directory.

    Returns:
        The command's fields of the result.
    """
    with Display(run.id) as display:
        trainings = _Trainings(prepared, run, display)
        for i in trainings.order:
            with run.claim(trainings.step(i), wait=True):  # always claimed: only wait=False can yield False
                log_point(logger, trainings.train(i).point)
    sizes, engine = trainings.sizes, trainings.engine
    parts = [trainings.train(i) for i in range(len(sizes))]
    run.save_curves(row for part in parts for row in part.losses)
    save_coded_bits(run, label_bits(prepared, sizes, engine.orders.cpu(), parts))
    result = block_code_result(prepared, sizes, parts)
    log_loss_curves(logger, parts[-1].losses)  # of the whole dataset, averaged over the seeds still training
    log_summary(logger, result)
    return replace(result, timing=Timing(stacking=asdict(engine.stacking)))


def train_free_sizes(prepared: PreparedTraining[MdlConfig], run: Run) -> bool:
    """Train the chunk sizes that no other process is training; return whether all sizes are trained afterwards."""
    with Display(run.id) as display:
        trainings = _Trainings(prepared, run, display)
        for i in trainings.order:
            with run.claim(trainings.step(i), wait=False) as claimed:
                # First look for the step, then for the result. Another process writes the result before it deletes
                # the steps, so in the other order a step could vanish in between, and would be trained again.
                if claimed and trainings.read(i) is None and run.result is None:
                    trainings.train(i)
        return all(trainings.read(i) for i in trainings.order) or run.result is not None


class _Trainings:
    """The trainings of a run, one for each chunk size and each a step of the run.

    Attributes:
        sizes: numbers of examples, ascending.
        order: their indices, in the order in which they are trained.
    """

    def __init__(self, prepared: PreparedTraining[MdlConfig], run: Run, display: Display) -> None:
        total = len(prepared.data["train"])
        settings = prepared.job.config.mdl
        if settings.validation == "given":
            instead = "mdl.validation=prefix stops them by training images"
            warn_of_unlike_validation(prepared.dataset.certificate, instead)
        self.sizes = chunk_sizes(total, settings, prepared.num_classes)
        indices = range(len(self.sizes))
        self.order = indices if settings.order == "smallest_first" else indices[::-1]
        self._prepared, self._run, self._display = prepared, run, display
        self._progress = TrainingProgress(self.sizes, prepared.settings)
        self._trained: dict[int, SizeTrained] = {}

    @functools.cached_property
    def engine(self) -> Engine:
        return Engine(self._prepared, self._run)

    def step(self, i: int) -> str:
        """Return the name of the run's step that trains size number i."""
        return str(self.sizes[i])

    def read(self, i: int) -> "SizeTrained | None":
        """Return the scores of size number i, or None if it is not trained."""
        if i not in self._trained and (part := self._run.read_step(self.step(i))) is not None:
            self._finish(i, parsed(SizeTrained, part))
        return self._trained.get(i)

    def train(self, i: int) -> "SizeTrained":
        """Train size number i unless it is trained, and return its scores."""
        if i not in self._trained:
            self._finish(i, parsed(SizeTrained, self._run.step(self.step(i), lambda: as_json(self._train(i)))))
            # Checkpoints are named after the number of fitted examples: the size less its held-out examples.
            self.engine.delete_checkpoints(self.sizes[i] - self._prepared.job.config.mdl.num_held_out(self.sizes[i]))
        return self._trained[i]

    def _train(self, i: int) -> "SizeTrained":
        n, following = self.sizes[i], self.sizes[min(i + 1, len(self.sizes) - 1)]
        orders = self.engine.orders

        def show(report: EpochReport) -> None:
            done = self._progress.share(i, *report.mean_epochs)
            self._display.update(done, f"chunk {i + 1}/{len(self.sizes)} (n = {n:,}) {report}")

        return train_size(self._prepared, self._run, self.engine, orders[:, :n], orders[:, n:following], show)

    def _finish(self, i: int, part: "SizeTrained") -> None:
        self._trained[i] = part
        self._progress.finish(i, max(part.point.epochs))


@dataclass(frozen=True)
class SizeTrained:
    """One training size's scores and loss curves, an entry per seed: saved until the run has finished.

    Attributes:
        point: the size's point on the learning curve.
        losses: rows of curves.csv.
        coded_bits: bits of each label up to the next size, in the seed's order; None for the last size.
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
    train, n = prepared.data["train"], known.shape[1]
    num_held_out = prepared.job.config.mdl.num_held_out(n)
    held_out = known[:, -num_held_out:] if num_held_out else None
    fitted = engine.fit(known[:, : n - num_held_out], show, held_out)
    test = fitted.score(prepared.data["test"])
    next_scores = next_calibrated = temperatures = None
    if following.numel():
        calibration_split = prepared.data["validation" if held_out is None else "train"]
        temperatures = fitted.temperatures(calibration_split, held_out)
        next_scores = fitted.score(train, following)
        next_calibrated = fitted.score(train, following, temperatures=temperatures)
    else:  # the last size, which has nothing left to predict
        save_test_bits(run, prepared.seeds, test.example_bits)
        save_weights(prepared, run, fitted)
    point = Point(
        n=n,
        ce_next_bits=next_scores and next_scores.bits.tolist(),
        ce_next_calibrated_bits=next_calibrated and next_calibrated.bits.tolist(),
        temperature=None if temperatures is None else temperatures.tolist(),
        ce_test_bits=test.bits.tolist(),
        ce_train_bits=fitted.score(train, known).bits.tolist(),
        ce_validation_bits=[curve.best_validation_bits for curve in fitted.curves],
        test_accuracy=test.accuracy.tolist(),
        **endings(fitted.curves),
    )
    rows = [row for curve in fitted.curves for row in curve.rows(n)]
    next_bits = next_scores and [[round(bits, 6) for bits in seed] for seed in next_scores.example_bits.tolist()]
    return SizeTrained(point, rows, next_bits)


def label_bits(
    prepared: PreparedTraining, sizes: Sequence[int], orders: Tensor, parts: Sequence[SizeTrained]
) -> CodedBits:
    """Return the cost of each training label, the first size's by the uniform code; `orders` is [S, N]."""
    uniform = torch.full((len(orders), sizes[0]), math.log2(prepared.num_classes))
    bits = torch.cat([uniform, *(torch.tensor(part.coded_bits) for part in parts[:-1])], 1)
    trained_on = torch.zeros(orders.shape[1], dtype=torch.int32)
    for n in sizes[:-1]:
        trained_on[n:] = n
    return bits_by_example(prepared.job, orders, bits, trained_on.expand_as(orders))


def block_code_result(prepared: PreparedTraining, sizes: Sequence[int], parts: Sequence[SizeTrained]) -> Coded:
    """Compute codelengths per seed, the learning curve, the final loss and the sharpest fall on the way there."""
    curve = [part.point for part in parts]
    k, total = prepared.num_classes, sizes[-1]
    following = zip(*(point.ce_next_bits or () for point in curve[:-1]), strict=True)
    calibrated = [*zip(*(point.ce_next_calibrated_bits or () for point in curve[:-1]), strict=True)]
    result = result_of_curve(curve, sizes, [online_code_bits(sizes, ce_next, k) for ce_next in following])
    per_label = [online_code_bits(sizes, ce_next, k) / total for ce_next in calibrated] or None
    by_seed = [[row for row in parts[-1].losses if row.seed == seed] for seed in prepared.seeds]  # of the last size
    drop = sharp_drops(([row.epoch for row in rows], [row.validation_loss_bits for row in rows]) for rows in by_seed)
    return replace(result, mdl=replace(result.mdl, calibrated_bits_per_sample=per_label), sharp_drop=drop)
