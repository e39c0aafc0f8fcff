"""Block-wise prequential code: train afresh on growing prefixes of the data, and sum the cost of the labels in bits."""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import mean

import numpy as np
import torch
from torch import Tensor

from erasure.image_cache import positions, whole_images
from erasure.progress import Display
from erasure.source import LabelledImages
from erasure.store.cache import Cache
from harness.example_bits import CodedBits, save_coded_bits, save_test_bits
from harness.job import Job
from harness.logger import Logger, log_loss_curves
from harness.loss_curves import CurveRow, sharp_drops
from harness.result import as_json, parsed
from harness.result_fields import Coded, Codelength, Final, Point, Timing, published_units
from harness.results.statistics import Spread
from harness.run_directory import Run
from mdl.chunks import chunk_sizes
from mdl.settings import MdlConfig
from train import prepared_data
from train.early_stopping import endings, warn_of_unlike_validation
from train.prepared_data import PreparedTraining
from train.progress import TrainingProgress
from train.single_training import save_weights
from train.training import Engine, EpochReport


def load(job: Job[MdlConfig]) -> PreparedTraining[MdlConfig]:
    """Prepare the data and the architecture, once the training sizes are known to fit.

    Raises:
        ValueError: as `chunk_sizes`.
    """
    chunk_sizes(len(split_positions(job)["train"]), job.config.mdl)
    return prepared_data.load(job)


def split_positions(job: Job) -> Mapping[str, LabelledImages]:
    """Return the positions of each split's examples in the dataset, and their labels, without fitting an eraser.

    Returns:
        One entry per split, whose `images` are not pixels but positions, [n] int64 (`erasure.image_cache.positions`).
    """
    return positions(job.source, whole_images(job.source, Cache(job.config.cache_dir)))


def prequential(prepared: PreparedTraining[MdlConfig], run: Run, logger: Logger) -> Coded:
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
        self.sizes = chunk_sizes(total, settings)
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


def bits_by_example(job: Job, orders: Tensor, bits: Tensor, trained_on: Tensor) -> CodedBits:
    """Place costs of labels, [S, N] in each seed's order, at their examples' positions in the dataset."""
    train = split_positions(job)["train"]
    return CodedBits.in_order(job.config.seeds, train.images, train.labels, orders, bits, trained_on)


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


def online_code_bits(sizes: Sequence[int], ce_next_bits: Sequence[float], num_classes: int) -> float:
    """Return the total bits of the online code (Voita & Titov 2020, section 3.2).

    The first n_1 labels are sent with the uniform code, each later part with the model trained on all
    before it: n_1 log2 k + Σ_{i<m} (n_{i+1} - n_i) CE_i.

    Args:
        sizes: cumulative training sizes n_1..n_m.
        ce_next_bits: CE_i of the model trained on n_i examples, on the next part, for i = 1..m-1.
        num_classes: k.
    """
    parts = [after - before for before, after in itertools.pairwise(sizes)]
    return sizes[0] * math.log2(num_classes) + sum(part * bits for part, bits in zip(parts, ce_next_bits, strict=True))


def fit_power_law(sizes: Sequence[int], ce_bits: Sequence[float]) -> dict[str, float] | None:
    """Fit a · n^-b + c with a, b, c >= 0 by least squares; None where it does not describe the curve.

    Returns a, b, c (bits) and r2, the share of variance explained. A curve that does not fall, or of
    which less than 90 % is explained, gets None rather than numbers that mean nothing.
    """
    n, y = np.asarray(sizes, float), np.asarray(ce_bits, float)
    spread = float(((y - y.mean()) ** 2).sum())
    if len(n) < 4 or spread == 0 or y[-1] >= y[0]:
        return None
    from scipy.optimize import least_squares

    def residuals(p: np.ndarray) -> np.ndarray:
        return p[0] * (n / n[0]) ** -p[1] + p[2] - y

    start = np.array([max(y[0] - y[-1], 1e-6), 0.5, max(y[-1] / 2, 1e-6)])
    solution = least_squares(residuals, start, bounds=([0, 0, 0], [np.inf, 10, np.inf]))
    a, b, c = solution.x
    r2 = 1 - float((solution.fun**2).sum()) / spread
    if r2 < 0.9 or b < 1e-3:
        return None
    return {"a": float(a * n[0] ** b), "b": float(b), "c": float(c), "r2": r2}


def result_of_curve(curve: Sequence[Point], sizes: Sequence[int], total_bits: Sequence[float]) -> Coded:
    """Compute the result of a learning curve and the codelengths of all labels, an entry per seed.

    Args:
        curve: a point for each size; the last size may lack one.
        sizes: training sizes n_1..n_m = N.
        total_bits: codelengths.
    """
    last, coding = curve[-1], curve[: len(sizes) - 1]
    assert last.test_accuracy is not None
    following = zip(*(point.ce_next_bits or () for point in coding), strict=True)
    tested = zip(*(point.ce_test_bits for point in coding), strict=True)
    return Coded(
        mdl=Codelength(
            bits_per_sample=[bits / sizes[-1] for bits in total_bits],
            total_bits=list(total_bits),
            published=[published_units(sizes, ce_test) for ce_test in tested],
        ),
        curve=list(curve),
        power_law=[fit_power_law(sizes[:-1], ce_next) for ce_next in following],
        final=Final(loss_bits=last.ce_test_bits, accuracy=last.test_accuracy, train_loss_bits=last.ce_train_bits),
    )


def logged_result(logger: Logger, curve: Sequence[Point], sizes: Sequence[int], total_bits: Sequence[float]) -> Coded:
    """Compute the result as `result_of_curve`, and log every size and the totals."""
    for point in curve:
        log_point(logger, point)
    result = result_of_curve(curve, sizes, total_bits)
    log_summary(logger, result)
    return result


def log_point(logger: Logger, point: Point) -> None:
    """Log a training size, means over seeds."""
    means = {"ce_next_bits": point.ce_next_bits, "ce_test_bits": point.ce_test_bits}
    logger.log({"mdl/n": point.n} | {f"mdl/{name}": mean(bits) for name, bits in means.items() if bits is not None})


def log_summary(logger: Logger, result: Coded) -> None:
    """Log the totals."""
    code = Spread.of(result.mdl.bits_per_sample)
    logger.summarise(
        {
            "result/bits_per_sample": code.mean,
            "result/bits_per_sample_std": code.std or 0.0,
            "result/published": mean(result.mdl.published),
            "result/loss_bits": mean(result.final.loss_bits),
            "result/accuracy": mean(result.final.accuracy),
        }
    )
