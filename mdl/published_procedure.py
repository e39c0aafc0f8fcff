"""A step-by-step reproduction of the prequential procedure in the paper's code: `train.protocol=published`.

The text of Quirke & Belrose 2025 leaves most of the procedure open; docs/study_details.md describes their code. It
differs from ours (`mdl.block_code`) in three ways. Test images are held-out training images. An epoch without
improvement is undone. Networks are scored in training mode with the weights of the training sequence, in bfloat16,
where losses are multiples of 1/64 bit. All other parts of a run are the same.
"""

import functools
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from schedulefree import AdamWScheduleFree
from torch import Tensor
from torch.nn import Parameter

from erasure.progress import Display
from harness.experiment import Experiment, Prepared, erased, network
from harness.logger import Logger
from harness.loss_curves import MemberCurve, endings, label_entropy_bits, sharp_drops
from harness.run_directory import Run
from harness.steps import json_steps
from mdl.block_code import SizeTrained
from mdl.coded_result import logged, result_of_curve
from mdl.online_code import online_code_bits
from mdl.result import MdlResult, Point
from mdl.settings import MdlConfig
from mdl.training_sizes import rounded_sizes, warn_of_few
from models.classifier import Classifier, count_parameters
from models.stackable_layers import Conv2d, Linear
from train.checkpoint import Checkpoints, State
from train.progress_estimate import TrainingProgress
from train.randomness import generator
from train.settings import TrainSettings
from train.stacking_rule import multiply_adds
from train.trainer import NonFiniteLossError
from train.training_step import GraphedFunction

log = logging.getLogger(__name__)
LabelledSet = tuple[Tensor, Tensor]  # images [n, C, H, W] and labels [n]
Snapshot = tuple[dict[str, Tensor], list[dict[str, Any]]]

_VALIDATION_SIZE, _VALIDATION_SHARE = 2048, 0.2
_GROUP_NUMBERS = ("k", "weight_sum", "lr_max", "scheduled_lr", "train_mode")  # state of schedulefree's parameter groups
_TEST_BATCH = 32  # affects results, as each batch's loss is rounded; validation uses the batch size of training


@dataclass(frozen=True)
class PublishedData(Prepared[MdlConfig]):
    """An experiment's architecture and its erased images, without the official test split.

    Attributes:
        images: training and validation images, [N, C, H, W] in the precision of training, not standardised.
        labels: labels of the images, [N].
        model: the network, in that precision.
    """

    images: Tensor
    labels: Tensor
    model: Classifier

    @property
    def settings(self) -> TrainSettings:
        return self.experiment.config.train

    @property
    def train_size(self) -> int:
        return _train_size(len(self.labels))

    @property
    def parameters(self) -> int:
        return count_parameters(self.model)

    @property
    def step_multiply_adds(self) -> float:
        """Number of multiplications in a forward pass of one batch."""
        examples = min(self.settings.batch_size, self.train_size)
        return examples * multiply_adds(self.model, self.images.shape[1:])


def _train_size(images: int) -> int:
    """Return the number of images that are not held out for validation."""
    return images - min(_VALIDATION_SIZE, round(_VALIDATION_SHARE * images))


def prepare(experiment: Experiment[MdlConfig]) -> PublishedData:
    """Erase the dataset or read it from the cache, and build the network, both in the precision of training.

    Raises:
        ValueError: the training sizes do not fit the dataset; raised before anything is fitted.
    """
    names, where = ("train", "validation"), experiment.split_positions
    _, labels = where["train"]
    n, k = sum(len(where[name][1]) for name in names), len(labels.unique())
    warn_of_few(rounded_sizes(_train_size(n), experiment.config.mdl, k), k)
    dataset, dtype = erased(experiment), getattr(torch, experiment.config.train.precision)
    parts = [dataset.splits[name] for name in names]
    images = torch.cat([part.images for part in parts]).to(experiment.device, dtype)
    labels = torch.cat([part.labels for part in parts]).to(experiment.device)
    model = network(experiment, experiment.config.model, images.shape[1:], len(dataset.class_names))
    return PublishedData(experiment, dataset, images, labels, model.to(dtype))


def published(data: PublishedData, run: Run, logger: Logger) -> MdlResult:
    """Train every seed on each size but the last and score it on the last part of the training images.

    Returns:
        The result. `mdl.published` is in the unit of the paper's code; `mdl.bits_per_sample` is the online code's
        length, estimated with the losses on the test part.
    """
    seeds, settings = data.experiment.config.seeds, data.settings
    sizes = rounded_sizes(data.train_size, data.experiment.config.mdl, len(data.dataset.class_names))
    short = [n for n in sizes[:-1] if settings.max_epochs * math.ceil(n / settings.batch_size) < settings.warmup_steps]
    if short:
        log.warning(
            "on %s examples or fewer, train.max_epochs=%s end before the %s steps of train.warmup_steps: the learning "
            "rate stays below train.lr",
            *(f"{number:,}" for number in (short[-1], settings.max_epochs, settings.warmup_steps)),
        )
    checkpoints = Checkpoints(run.directory, settings.checkpoint_every_s, run.require_lease)
    trained: list[list[SizeTrained]] = []
    step = json_steps(run, SizeTrained)
    with Display(run.id) as display:
        progress = TrainingProgress([n for n in sizes[:-1] for _ in seeds])
        for i, n in enumerate(sizes[:-1]):
            trained.append([])
            for turn, seed in enumerate(seeds, i * len(seeds)):
                show = functools.partial(_show, display, progress, turn)
                train = functools.partial(_train, data, seed, sizes, i, checkpoints, show)
                trained[-1].append(step(f"{n}-{seed}", train))
                checkpoints.delete(f"{n}-{seed}-")
                progress.finish(turn)
    curve = [_joined([one.point for one in of_size]) for of_size in trained]
    run.save_curves(row for of_size in trained for one in of_size for row in one.losses)
    drops = sharp_drops(row for one in trained[-1] for row in one.losses)
    tested = zip(*(point.ce_test_bits for point in curve), strict=True)
    totals = [online_code_bits(sizes, ce_test, len(data.dataset.class_names)) for ce_test in tested]
    return logged(result_of_curve(data, curve, sizes, totals, sharp_drop=drops), logger)


def _show(display: Display, progress: TrainingProgress, turn: int, training: "PublishedTraining") -> None:
    """Show the progress of training number `turn`."""
    n, curve = len(training.train[1]), training.curve
    share = progress.share(turn, curve.epochs, training.epochs_left)
    display.update(share, f"n = {n:,}, seed {curve.seed}, {training}")


def published_order(seed: int, total: int, chunk: int) -> Tensor:
    """Return the order [total] of all images at size number `chunk`: each size shuffles the previous size's order."""
    source = generator(seed, "published", "order")
    order = torch.arange(total)
    for _ in range(chunk + 1):
        order = order[torch.randperm(total, generator=source)]
    return order


def mean_bits(log_probabilities: Tensor, z: Tensor, precision: torch.dtype | None = None) -> Tensor:
    """Return the mean cross-entropy of a batch in bits, rounded as CUDA does: after the mean and after the division.

    The result stays on its device, so that the CPU does not wait for a GPU after every batch.

    Args:
        log_probabilities: log-softmax of the logits, rounded to its dtype, [B, k].
        z: labels, [B].
        precision: dtype of the mean; by default that of `log_probabilities`.
    """
    nats = -log_probabilities.gather(1, z[:, None]).float().mean()
    return nats.to(precision or log_probabilities.dtype) / math.log(2)


def _train(
    data: PublishedData,
    seed: int,
    sizes: Sequence[int],
    i: int,
    checkpoints: Checkpoints,
    show: Callable[["PublishedTraining"], None],
) -> SizeTrained:
    """Train one seed at size number i, on the first images of the order at this size.

    The last part of `sizes` is the test data. The images after it stop the training.
    """
    n, order = sizes[i], published_order(seed, len(data.labels), i).to(data.labels.device)

    def part(first: int, end: int | None) -> LabelledSet:
        index = order[first:end]
        return data.images[index], data.labels[index]

    train, test, validation = part(0, n), part(sizes[-2], sizes[-1]), part(sizes[-1], None)

    training = PublishedTraining(data.model, seed, train, validation, data.settings, flip=data.experiment.source.flip)
    with checkpoints.continued(f"{n}-{seed}-0", training):
        for _ in training.run():
            show(training)
    loss, accuracy = training.score(test, _TEST_BATCH)
    point = Point(
        n=n,
        ce_next_bits=[loss],
        ce_test_bits=[loss],
        ce_test_averaged_bits=[training.averaged_loss(test)],
        ce_validation_bits=[training.curve.best_validation_bits],
        test_accuracy=[accuracy],
        **endings([training.curve]),
    )
    return SizeTrained(point, training.curve.rows(n))


class PublishedTraining:
    """One network trained by the paper's loop.

    Every epoch takes the training images in the same order, with one crop and one flip for a whole batch. The network
    is scored on the validation images before training and after every epoch. If it has not improved, weights and
    optimizer state are reset to the best. Training ends after `patience_epochs` epochs in a row without improvement.

    Args:
        model: the network; its parameters are drawn anew, and it is trained in place.
        seed: seed of the initial weights, crops, flips and dropped branches.
        train: training images [n, C, H, W] and labels [n].
        validation: validation images and labels.
        settings: training options; those of the loop are in `published`.
        flip: whether batches may be mirrored.
    """

    def __init__(
        self,
        model: Classifier,
        seed: int,
        train: LabelledSet,
        validation: LabelledSet,
        settings: TrainSettings,
        *,
        flip: bool,
    ) -> None:
        images, labels = train
        self.model, self.train, self.validation, self.settings, self.flip = model, train, validation, settings, flip
        initialise(model, generator(seed, len(labels), "init"))
        self._parameters = list(model.parameters())
        factors, groups = model.learning_rates(), defaultdict[float, list[Parameter]](list)
        for name, parameter in model.named_parameters():
            groups[settings.lr * factors[name]].append(parameter)
        self._optimizer = AdamWScheduleFree(
            [{"params": parameters, "lr": lr} for lr, parameters in groups.items()],
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            warmup_steps=settings.warmup_steps,
        )
        self._optimizer.train()
        self.curve = MemberCurve(seed, label_entropy_bits(labels.cpu()))
        self.failures = 0  # epochs in a row without improvement
        self._best = self._snapshot()
        self._train_bits: float | None = None  # mean loss of the last epoch
        self._draws = {purpose: generator(seed, len(labels), purpose) for purpose in ("views", "stochastic depth")}
        self._loss_precision = torch.bfloat16 if settings.published.round_losses else None
        self._padding = round(settings.crop_padding * images.shape[-1])
        self.before_step: Callable[[], None] = lambda: None
        self._gradients, self._scores = GraphedFunction(self._loss_and_gradients), GraphedFunction(self._loss_and_hits)

    @property
    def finished(self) -> bool:
        """Whether the training has ended."""
        return self.curve.ended is not None

    @property
    def epochs_left(self) -> int:
        """The number of epochs left if the validation loss does not improve again."""
        options = self.settings.published
        return min(options.patience_epochs - self.failures, self.settings.max_epochs - self.curve.epochs)

    def __str__(self) -> str:
        best = self.curve.best_validation_bits
        return f"epoch {self.curve.epochs}: validation {best:.3f} bits at best, {self.failures} epochs ago"

    def run(self) -> Iterator[None]:
        """Train until it ends, epoch by epoch, and set the weights to the best."""
        while not self.finished:
            self.before_step()
            self._validate()
            if not self.finished:
                self._train_epoch()
                yield
        self._set_to(self._best)

    def score(self, examples: LabelledSet, batch_size: int) -> tuple[float, float]:
        """Return loss in bits and accuracy of the current weights in training mode, averaged over batches."""
        bits, right, sizes = [], [], []
        with torch.no_grad():
            for x, z in _batches(examples, batch_size):
                loss, hits = self._scores(x, z, *self._drop_factors(x))
                bits.append(loss.clone())
                right.append(hits.clone())
                sizes.append(len(z))
        total = sum(mean * size for mean, size in zip(torch.stack(bits).tolist(), sizes, strict=True))
        return total / sum(sizes), int(torch.stack(right).sum()) / sum(sizes)

    @torch.no_grad()
    def averaged_loss(self, examples: LabelledSet) -> float:
        """Return the loss in bits of the averaged weights x in evaluation mode, not rounded, as in our procedure."""
        before = self._snapshot()
        self._optimizer.eval()
        nats = [F.cross_entropy(self.model(x).float(), z, reduction="sum") for x, z in _batches(examples, 128)]
        self._set_to(before)  # schedulefree's train() would add rounding errors to the weights
        return float(torch.stack(nats).double().sum()) / len(examples[1]) / math.log(2)

    def state(self) -> State:
        """Return the state that `restore` needs; called between epochs."""
        (now, now_numbers), (best, best_numbers) = self._snapshot(), self._best
        tensors = {f"now.{key}": value for key, value in now.items()} | {f"best.{k}": v for k, v in best.items()}
        curve = self.curve
        return tensors | {purpose: source.get_state() for purpose, source in self._draws.items()}, {
            "now": now_numbers,
            "best": best_numbers,
            "evaluations": [curve.epoch, curve.train_loss_bits, curve.validation_loss_bits],
            "failures": self.failures,
            "train_bits": self._train_bits,
        }

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> bool:
        """Continue from another training's state; return False if seed, size or optimizer groups differ."""
        if len(values["now"]) != len(self._optimizer.param_groups):
            return False
        now, best = (
            {key.removeprefix(f"{kind}."): value for key, value in tensors.items() if key.startswith(f"{kind}.")}
            for kind in ("now", "best")
        )
        self._set_to((now, values["now"]))
        self._best = ({key: value.clone() for key, value in best.items()}, values["best"])
        for purpose, source in self._draws.items():
            source.set_state(tensors[purpose].clone())
        curve = self.curve
        curve.epoch, curve.train_loss_bits, curve.validation_loss_bits = (list(one) for one in values["evaluations"])
        self.failures, self._train_bits = values["failures"], values["train_bits"]
        return True

    def _validate(self) -> None:
        loss, _ = self.score(self.validation, self.settings.batch_size)
        if not math.isfinite(loss):
            raise NonFiniteLossError(
                f"the loss is not finite (validation {loss} bits) at training size {len(self.train[1])}, seed "
                f"{self.curve.seed}, epoch {len(self.curve.epoch)}, learning rate {self.settings.lr:g}: lower train.lr"
            )
        curve, options = self.curve, self.settings.published
        improved = loss < curve.best_validation_bits
        curve.train_loss_bits.append(self._train_bits)
        curve.epoch.append(len(curve.epoch))
        curve.validation_loss_bits.append(loss)
        self.failures = 0 if improved else self.failures + 1
        if improved:
            self._best = self._snapshot()
        elif self.failures >= options.patience_epochs:
            curve.ended = "patience"
        elif options.backtrack:
            self._set_to(self._best, keep_state=options.share_saved_state and self.failures > 1)
        if curve.epochs >= self.settings.max_epochs and curve.ended is None:
            curve.ended = "max_epochs"

    def _train_epoch(self) -> None:
        losses = []
        for x, z in _batches(self.train, self.settings.batch_size):
            x = self._augmented(x)
            loss, gradients = self._gradients(x, z, *self._drop_factors(x))
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.grad = gradient
            self._optimizer.step()
            losses.append(loss.clone())
        self._train_bits = sum(torch.stack(losses).tolist()) / len(losses)

    def _loss_and_gradients(self, x: Tensor, z: Tensor, *factors: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        """Return a batch's rounded loss in bits, and the gradients of the loss."""
        log_probabilities = self._log_probabilities(x, factors)
        gradients = torch.autograd.grad(F.nll_loss(log_probabilities, z) / math.log(2), self._parameters)
        return mean_bits(log_probabilities.detach(), z, self._loss_precision), gradients

    def _loss_and_hits(self, x: Tensor, z: Tensor, *factors: Tensor) -> tuple[Tensor, Tensor]:
        """Return a batch's rounded loss in bits, and the number of correct predictions."""
        log_probabilities = self._log_probabilities(x, factors)
        return mean_bits(log_probabilities, z, self._loss_precision), (log_probabilities.argmax(1) == z).sum()

    def _drop_factors(self, x: Tensor) -> list[Tensor]:
        """Draw the dropped branches of a batch: a factor [B] for each layer of stochastic depth."""
        source, rates = self._draws["stochastic depth"], [layer.rate for layer in self.model.stochastic_depth()]
        return [((torch.rand(len(x), generator=source) >= rate) / (1 - rate)).to(x.device) for rate in rates]

    def _log_probabilities(self, x: Tensor, factors: Sequence[Tensor]) -> Tensor:
        """Return the log-softmax of the network's logits, [B, k], branches dropped as in training."""
        layers = self.model.stochastic_depth()
        for layer, of_layer in zip(layers, factors, strict=True):
            layer.factors = of_layer
        try:
            return self.model(x).log_softmax(1)
        finally:
            for layer in layers:
                layer.factors = None

    def _augmented(self, x: Tensor) -> Tensor:
        """Pad a batch [B, C, H, W] with zeros, crop all images at one position, and mirror all of them or none."""
        source, padding, (height, width) = self._draws["views"], self._padding, x.shape[-2:]
        top, left = torch.randint(2 * padding + 1, (2,), generator=source).tolist()
        x = F.pad(x, (padding,) * 4)[..., top : top + height, left : left + width]
        return x.flip(-1) if torch.rand((), generator=source) < 0.5 and self.flip else x

    def _snapshot(self) -> Snapshot:
        """Copy weights and optimizer state: tensors by name and position, and numbers per group."""
        tensors = {}
        for i, parameter in enumerate(self._parameters):
            state = self._optimizer.state.get(parameter, {})
            tensors |= {f"{name}.{i}": state[name].clone() for name in ("z", "exp_avg_sq") if name in state}
            tensors[f"y.{i}"] = parameter.detach().clone()
        return tensors, [{name: group[name] for name in _GROUP_NUMBERS} for group in self._optimizer.param_groups]

    @torch.no_grad()
    def _set_to(self, snapshot: Snapshot, *, keep_state: bool = False) -> None:
        """Set weights and optimizer state to a snapshot; `keep_state` leaves z and v unchanged."""
        tensors, numbers = snapshot
        for group, of_group in zip(self._optimizer.param_groups, numbers, strict=True):
            group.update(of_group)
        for i, parameter in enumerate(self._parameters):
            parameter.copy_(tensors[f"y.{i}"])
            if keep_state and f"z.{i}" in tensors:
                continue
            state = {
                name: tensors[f"{name}.{i}"].to(parameter, copy=True)
                for name in ("z", "exp_avg_sq")
                if f"{name}.{i}" in tensors
            }
            self._optimizer.state[parameter] = state


def initialise(model: Classifier, source: torch.Generator) -> None:
    """Draw linear and convolutional layers with PyTorch's default, uniform in ± fan_in^-½; the readout is zero.

    Networks that contain other layers are initialised as in our procedure.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, Linear | Conv2d)]
    model.reset_parameters(source)
    if sum(p.numel() for layer in layers for p in layer.parameters()) < count_parameters(model):
        return
    for layer in layers[:-1]:  # the readout is the last
        bound = layer.weight[0].numel() ** -0.5
        for parameter in (layer.weight, layer.bias):
            draws = torch.empty(parameter.shape).uniform_(-bound, bound, generator=source)
            parameter.data.copy_(draws)


def _batches(examples: LabelledSet, size: int) -> Iterator[LabelledSet]:
    return zip(*(part.split(size) for part in examples), strict=True)


def _joined(points: Sequence[Point]) -> Point:
    """Join the points of single seeds into one point of all seeds."""
    first = vars(points[0])
    lists = {
        name: [entry for point in points for entry in getattr(point, name)]
        for name in first
        if isinstance(first[name], list)
    }
    return Point(**{**first, **lists})
