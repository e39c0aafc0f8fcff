"""Block-wise prequential code: train a new network on each growing prefix, and sum the cost of the labels in bits.

`mdl.codelength` and `python -m mdl`, whose steps are training sizes, both call `block_code`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from erasure.progress import Display, Show, hidden
from harness.example_bits import save_coded_bits, save_test_bits
from harness.experiment import Experiment
from harness.logger import Logger, log_loss_curves
from harness.loss_curves import CurveRow, endings, sharp_drops
from harness.result_fields import Timing
from harness.run_directory import Run
from harness.steps import computed, json_steps
from mdl.coded_result import logged, result_of_curve
from mdl.online_code import online_code_bits
from mdl.result import MdlResult, Point
from mdl.settings import MdlConfig, MdlSettings
from mdl.training_sizes import chunk_sizes, warn_of_few
from train import prepared_training
from train.checkpoint import Checkpoints
from train.device_images import DeviceImages
from train.early_stopping import warn_of_unlike_validation
from train.ensemble import Ensemble, Evaluation
from train.epoch_trainer import EpochReport, Fit, fit_members
from train.prepared_training import PreparedTraining
from train.progress_estimate import TrainingProgress
from train.randomness import permutations
from train.settings import TrainSettings

OnFinal = Callable[[Fit, Evaluation], object]


def prepare(experiment: Experiment[MdlConfig]) -> PreparedTraining[MdlConfig]:
    """Prepare the data and the architecture, once the training sizes are known to fit.

    Raises:
        ValueError: as `chunk_sizes`.
    """
    (_, labels), settings = experiment.split_positions["train"], experiment.config.mdl
    k = len(labels.unique())
    sizes = chunk_sizes(len(labels), settings, k)
    if settings.code == "blocks":  # the other scores a network that it trains on all
        warn_of_few(sizes, k)
    return prepared_training.prepare(experiment)


def code_labels(prepared: PreparedTraining[MdlConfig], run: Run, logger: Logger) -> MdlResult:
    """Code the labels of the training split in a run, and store what each cost; return the result.

    Sizes that an earlier, interrupted attempt has finished are taken from the run's directory.
    """
    settings = prepared.experiment.config.mdl
    if settings.validation == "given":
        instead = "mdl.validation=prefix stops them by training images"
        warn_of_unlike_validation(prepared.dataset.certificate, instead)

    def save_final(fitted: Fit, test: Evaluation) -> None:
        save_test_bits(run, prepared.seeds, test.example_bits)
        prepared.save_weights(run, fitted)

    with Display(run.id) as display:
        coded = block_code(
            prepared.ensemble,
            prepared.data,
            prepared.num_classes,
            prepared.seeds,
            prepared.settings,
            settings,
            stack=prepared.stacking.stack,
            checkpoints=prepared.checkpoints(run),
            steps=json_steps(run, SizeTrained),
            on_progress=display.update,
            on_final=save_final,
        )
    run.save_curves(row for size in coded.trained for row in size.losses)
    save_coded_bits(run, prepared.experiment, coded.orders, *coded.label_bits())
    last = coded.trained[-1].losses  # of the whole dataset
    log_loss_curves(logger, last)
    curve, timing = [size.point for size in coded.trained], Timing(stacking=asdict(prepared.stacking))
    further = {"sharp_drop": sharp_drops(last), "timing": timing}
    return logged(result_of_curve(prepared, curve, coded.sizes, coded.total_bits, **further), logger)


@dataclass(frozen=True)
class BlockCode:
    """The code of a training split's labels, an entry per seed.

    Attributes:
        sizes: training sizes n_1 < ... < n_m = N.
        orders: the order in which each seed codes the examples, [S, N].
        num_classes: k.
        trained: scores and loss curves by size; without test examples all but the last.
    """

    sizes: Sequence[int]
    orders: Tensor
    num_classes: int
    trained: Sequence["SizeTrained"]

    @property
    def coding(self) -> Sequence["SizeTrained"]:
        """The sizes whose networks code labels."""
        return self.trained[: len(self.sizes) - 1]

    @property
    def total_bits(self) -> list[float]:
        """Codelength of all labels in bits, for each seed."""
        following = zip(*(size.point.ce_next_bits or () for size in self.coding), strict=True)
        return [online_code_bits(self.sizes, ce_next, self.num_classes) for ce_next in following]

    def label_bits(self) -> tuple[Tensor, Tensor]:
        """Return the cost of each label and the number of examples that its network was trained on.

        Both are [S, N] in coding order. The first labels are sent with the uniform code, so their number is 0.
        """
        uniform = torch.full((len(self.orders), self.sizes[0]), math.log2(self.num_classes))
        bits = torch.cat([uniform, *(torch.tensor(size.coded_bits) for size in self.coding)], 1)
        trained_on = torch.zeros(self.orders.shape[1], dtype=torch.int32)
        for n in self.sizes[:-1]:
            trained_on[n:] = n
        return bits, trained_on.expand_as(self.orders)


def block_code(
    ensemble: Ensemble,
    data: Mapping[str, DeviceImages],
    num_classes: int,
    seeds: Sequence[int],
    training: TrainSettings,
    settings: MdlSettings,
    *,
    sizes: Sequence[int] | None = None,
    stack: int | None = None,
    checkpoints: Checkpoints | None = None,
    steps: Callable[[str, Callable[[], "SizeTrained"]], "SizeTrained"] = computed,
    on_progress: Show = hidden,
    on_final: OnFinal = hidden,
) -> BlockCode:
    """Train on every size, and score each network on the examples up to the next size and on the test split.

    Each seed is trained on the first examples of its order. Without test examples no network is trained on all
    examples, as no label is left to code.

    Args:
        ensemble: the architecture.
        data: splits on the device: "train" and "test", and "validation" unless it is cut from each training set.
        num_classes: k.
        seeds: one per member.
        training: how to train.
        settings: training sizes, their order, and the examples that stop trainings.
        sizes: training sizes in place of the settings', ascending, ending in N.
        stack: members that train together, as for `fit_members`.
        checkpoints: where unfinished trainings are saved; None for nowhere.
        steps: called with a name and a function for each size; returns the function's value, or the value stored by an
            earlier, interrupted attempt.
        on_progress: called with the share done, from 0 to 1, and the current task.
        on_final: called with the networks trained on everything and their test scores.

    Raises:
        ValueError: sizes that do not fit the data.
        NonFiniteLossError: a training diverged.
    """
    train, test = data["train"], data["test"]
    sizes = chunk_sizes(len(train), settings, num_classes) if sizes is None else sizes
    orders = permutations(seeds, len(train)).to(train.labels.device)
    trained: dict[int, SizeTrained] = {}
    indices = range(len(sizes) if len(test) else len(sizes) - 1)
    progress = TrainingProgress(sizes[: len(indices)])
    for i in indices if settings.order == "smallest_first" else reversed(indices):
        n, after = sizes[i], sizes[min(i + 1, len(sizes) - 1)]
        fitted_n = n - settings.num_held_out(n)  # examples of the prefix to train on; the others stop training

        def show(report: EpochReport, i: int = i) -> None:
            done = progress.share(i, *report.mean_epochs)
            on_progress(done, f"chunk {i + 1}/{len(sizes)} (n = {sizes[i]:,}) {report}")

        def train_size(n: int = n, after: int = after, fitted_n: int = fitted_n, show: Any = show) -> SizeTrained:
            held_out = orders[:, fitted_n:n] if fitted_n < n else None
            fitted = fit_members(
                ensemble, data, seeds, orders[:, :fitted_n], training, show,
                held_out=held_out, stack=stack, checkpoints=checkpoints,
            )  # fmt: skip
            return score_size(fitted, data, orders[:, :n], orders[:, n:after], held_out, on_final)

        trained[i] = steps(str(n), train_size)
        if checkpoints is not None:
            checkpoints.delete(f"{fitted_n}-")
        progress.finish(i)
    return BlockCode(sizes, orders.cpu(), num_classes, [trained[i] for i in indices])


@dataclass(frozen=True)
class SizeTrained:
    """Scores and loss curves of one training size, by seed; saved until the run has finished.

    Attributes:
        point: the size's point on the learning curve.
        losses: rows of curves.csv.
        coded_bits: bits of each label up to the next size, in the seed's order; None for the last size.
    """

    point: Point
    losses: list[CurveRow]
    coded_bits: list[list[float]] | None = None


def score_size(
    fitted: Fit,
    data: Mapping[str, DeviceImages],
    known: Tensor,
    following: Tensor,
    held_out: Tensor | None,
    on_final: OnFinal = hidden,
) -> SizeTrained:
    """Score the networks of one size.

    Args:
        fitted: the trained networks.
        data: splits on the device.
        known: positions in the training split of the examples up to this size, [S, n].
        following: positions of the examples up to the next size, which the networks code; empty for the last size.
        held_out: positions of the examples that stopped the trainings; None for the validation split.
        on_final: called with the networks of the last size and their test scores.
    """
    train, test = data["train"], fitted.score(data["test"])
    num_held_out = 0 if held_out is None else held_out.shape[1]
    next_scores = next_calibrated = temperatures = None
    if following.numel():
        calibration_split = data["validation"] if held_out is None else train
        temperatures = fitted.temperatures(calibration_split, held_out)
        next_scores = fitted.score(train, following)
        next_calibrated = fitted.score(train, following, temperatures=temperatures)
    else:
        on_final(fitted, test)
    point = Point(
        n=known.shape[1],
        ce_next_bits=next_scores and next_scores.bits.tolist(),
        ce_next_calibrated_bits=next_calibrated and next_calibrated.bits.tolist(),
        temperature=None if temperatures is None else temperatures.tolist(),
        ce_test_bits=test.bits.tolist(),
        ce_train_bits=fitted.score(train, known[:, : known.shape[1] - num_held_out]).bits.tolist(),
        ce_validation_bits=[curve.best_validation_bits for curve in fitted.curves],
        test_accuracy=test.accuracy.tolist(),
        **endings(fitted.curves),
    )
    rows = [row for curve in fitted.curves for row in curve.rows(point.n)]
    next_bits = next_scores and [[round(bits, 6) for bits in seed] for seed in next_scores.example_bits.tolist()]
    return SizeTrained(point, rows, next_bits)
