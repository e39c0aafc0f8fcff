"""The main job: train afresh on growing prefixes of the data, and add up what the labels cost in bits."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import mean

from torch import Tensor

from erasure.progress import Display
from harness.compare import Spread
from harness.example_bits import save_test_bits
from harness.logger import Logger, log_loss_curves
from harness.loss_curves import CurveRow, sharp_drops
from harness.result import Coded, Codelength, Final, Point, Timing, as_json, parsed
from harness.run import Run
from mdl.chunks import ChunkSettings, chunk_sizes
from mdl.codelength import online_code_bits, paper_units
from mdl.powerlaw import fit_power_law
from train.bench import Bench
from train.early_stopping import endings
from train.engine import Engine, EpochReport
from train.order import epoch_steps
from train.settings import TrainSettings

AXES = {"mdl/*": "mdl/n", "loss/*": "loss/epoch"}


def prequential(bench: Bench, run: Run, logger: Logger) -> Coded:
    """Train on every chunk size and score each model on the next chunk and on the test split.

    Finished chunk sizes of an earlier, interrupted attempt are taken from the run's directory.

    Returns:
        The verb's share of the result.
    """
    total = len(bench.data["train"])
    chunks = bench.job.settings(ChunkSettings)
    sizes = chunk_sizes(total, chunks)
    work = Work(sizes, bench.settings)
    parts = {}
    with Display(run.id) as display:
        engine = Engine(bench, run)
        orders = engine.orders
        turns = range(len(sizes)) if chunks.order == "smallest_first" else reversed(range(len(sizes)))
        for i in turns:
            n, following = sizes[i], [*sizes[1:], total][i]
            kept = run.part(str(n))
            if kept is not None:
                part = parsed(SizeTrained, kept)
            else:

                def show(report: EpochReport, i: int = i, n: int = n) -> None:
                    done = work.share(i, report.mean_epochs)
                    display.update(done, f"chunk {i + 1}/{len(sizes)} (n = {n:,}) {report}")

                part = train_size(bench, run, engine, orders[:, :n], orders[:, n:following], show)
                run.save_part(str(n), as_json(part))
                engine.finished(n)
            work.finish(i, max(part.point.epochs))
            _log_point(logger, part.point)
            parts[i] = part
    parts = [parts[i] for i in range(len(sizes))]
    run.save_curves(row for part in parts for row in part.losses)
    result = summarise(bench, sizes, parts)
    _log_summary(logger, parts[-1].losses, result)
    return replace(result, timing=Timing(stacking=asdict(engine.stacking)))


@dataclass(frozen=True)
class SizeTrained:
    """What one training size gave, an entry per seed, and its loss curves: kept while the run is unfinished."""

    point: Point
    losses: list[CurveRow]


def train_size(
    bench: Bench, run: Run, engine: Engine, known: Tensor, following: Tensor, show: Callable[[EpochReport], None]
) -> SizeTrained:
    """Train every seed on its `known` examples [S, n] and score it on those that follow [S, m], m >= 0."""
    train = bench.data["train"]
    fitted = engine.fit(known, show)
    test = fitted.score(bench.data["test"])
    if not following.numel():  # the last size, which has nothing left to predict
        save_test_bits(run, bench.seeds, test.example_bits)
    point = Point(
        n=known.shape[1],
        ce_next_bits=fitted.score(train, following).bits.tolist() if following.numel() else None,
        ce_test_bits=test.bits.tolist(),
        ce_train_bits=fitted.score(train, known).bits.tolist(),
        ce_validation_bits=[curve.best_validation_bits for curve in fitted.curves],
        test_accuracy=test.accuracy.tolist(),
        **endings(fitted.curves),
    )
    return SizeTrained(point, [row for curve in fitted.curves for row in curve.rows(known.shape[1])])


def summarise(bench: Bench, sizes: Sequence[int], parts: Sequence[SizeTrained]) -> Coded:
    """Codelengths per seed, the learning curve, the final loss and the sharpest fall on the way there."""
    curve = [part.point for part in parts]
    k, total, last = bench.num_classes, sizes[-1], curve[-1]
    assert last.test_accuracy is not None
    following = list(zip(*(point.ce_next_bits or () for point in curve[:-1]), strict=True))
    code = [online_code_bits(sizes, ce_next, k) for ce_next in following]
    tested = zip(*(point.ce_test_bits for point in curve), strict=True)
    return Coded(
        mdl=Codelength(
            bits_per_sample=[bits / total for bits in code],
            total_bits=code,
            paper=[paper_units(sizes, ce_test, total) for ce_test in tested],
        ),
        curve=curve,
        power_law=[fit_power_law(sizes[:-1], ce_next) for ce_next in following],
        final=Final(loss_bits=last.ce_test_bits, accuracy=last.test_accuracy, train_loss_bits=last.ce_train_bits),
        sharp_drop=sharp_drops([_losses(parts[-1].losses, seed) for seed in bench.seeds]),
    )


def _losses(rows: Sequence[CurveRow], seed: int) -> tuple[list[float], list[float]]:
    """One seed's epochs and validation losses."""
    own = [row for row in rows if row.seed == seed]
    return [row.epoch for row in own], [row.validation_loss_bits for row in own]


class Work:
    """The share of a prequential run that is done, in optimiser steps.

    Early stopping makes the length of a training unknown: sizes to come are expected to take as many epochs
    as the longest so far.
    """

    def __init__(self, sizes: Sequence[int], settings: TrainSettings) -> None:
        self._steps = [epoch_steps(n, settings) for n in sizes]
        self._epochs: dict[int, int] = {}  # of finished sizes
        self._expected = 3 * settings.patience_steps / settings.min_epoch_steps

    def finish(self, i: int, epochs: int) -> None:
        """Size number `i` took this many epochs."""
        self._epochs[i] = epochs
        self._expected = max(self._epochs.values())

    def share(self, i: int, epoch: float) -> float:
        """Share done when size number `i` has trained for `epoch` epochs; between 0 and 1."""
        done = sum(self._steps[j] * epochs for j, epochs in self._epochs.items())
        rest = sum(steps for j, steps in enumerate(self._steps) if j not in self._epochs and j != i)
        here = self._steps[i] * max(self._expected, epoch + 1)
        return (done + self._steps[i] * epoch) / (done + here + rest * self._expected)


def _log_point(logger: Logger, point: Point) -> None:
    means = {"ce_next_bits": point.ce_next_bits, "ce_test_bits": point.ce_test_bits}
    logger.log({"mdl/n": point.n} | {f"mdl/{name}": mean(bits) for name, bits in means.items() if bits is not None})


def _log_summary(logger: Logger, rows: Sequence[CurveRow], result: Coded) -> None:
    """The whole-dataset training's loss curves averaged over the seeds still training, and the totals."""
    log_loss_curves(logger, rows)
    code = Spread.of(result.mdl.bits_per_sample)
    logger.summarise(
        {
            "result/bits_per_sample": code.mean,
            "result/bits_per_sample_std": code.std or 0.0,
            "result/paper": mean(result.mdl.paper),
            "result/loss_bits": mean(result.final.loss_bits),
            "result/accuracy": mean(result.final.accuracy),
        }
    )
