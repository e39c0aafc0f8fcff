"""Seconds of training several seeds at once, one by one, and by a plain DataLoader loop.

    uv run python -m scripts.benchmarks.train --model mlp --dataset digits
    uv run python -m scripts.benchmarks.train --model lenet --dataset cifar --samples 4000 --epochs 2

Same examples, batch size, epochs, initial weights and validation losses (printed). The floor is the longer of two:
of all matrix products and convolutions, as PyTorch counts them, at the rate of a large product; of reading and writing
weights and activations. Both are in the precision of training, at rates measured first. A second table has the kernels
of a step (on a CPU: the operations), and the time in which none runs.

    python -m scripts.benchmarks.train --device cuda --model convnextv2 --only rule compiled model

measures some of the ways to train: the rule's stacking, the other one, without CUDA graphs, compiled
(train.compile=true), in another memory format, by fused attention, and from initial weights that are one rounding
larger ("nudged"). Each row says how far its validation losses end from those of the first, at most.
"""

import argparse
import dataclasses
import functools
import math
import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from conf.command_process import exit_code
from conf.compose import composed
from conf.target_class import Target
from erasure.dataset import LabelledImages
from erasure.pipeline import ErasedDataset
from erasure.splits import splits
from harness.results.table import Table
from mdl.settings import MdlConfig
from models.classifier import Classifier
from scripts.benchmarks.benchmark_helpers import (
    Cost,
    Row,
    argument_parser,
    attempt,
    machine,
    measured,
    memory_rate,
    product_rate,
    show,
    shown,
    timed,
)
from scripts.benchmarks.stacking import Case
from scripts.benchmarks.step_flops_and_bytes import Device, Step
from scripts.benchmarks.step_profile import profile_table
from scripts.images_for_benchmarks import DIGITS, labelled_images
from train.device_images import DeviceImages, to_device
from train.ensemble import Ensemble, Weights
from train.epoch_trainer import EpochTrainer, fit_members
from train.memory import keep_freed_memory
from train.randomness import permutation
from train.settings import TrainSettings
from train.stacking_rule import Stacking, choose
from train.training_step import GraphedFunction, TrainingStep

_FOREVER = 10**9
_MODEL_WAYS = {"convnextv2": "channels_last", "swinv2": "fused_attention"}  # attributes of their classes
WAYS = ("rule", "other", "ungraphed", "model", "nudged", "compiled", "compiled-other", "compiled-model")
_DEFAULT_WAYS = WAYS[:4]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argument_parser("train", __doc__, model="mlp", samples=4000, seeds=5, epochs=3)
    parser.add_argument("--width", type=int, help="default: the model's")
    parser.add_argument("--dataset", choices=("digits", "cifar"), default="digits", help="default: %(default)s")
    parser.add_argument("--images", default="", help="folder of images for cifar; default: synthetic ones")
    parser.add_argument("--skip-peer", action="store_true", help="leave out the DataLoader loop")
    parser.add_argument("--only", nargs="+", choices=WAYS, help=f"default: {' '.join(_DEFAULT_WAYS)}")
    options = parser.parse_args(arguments)
    if min(options.seeds, options.epochs, options.samples // 100) < 1:
        parser.error("--seeds and --epochs must be at least 1, --samples at least 100")
    if options.images and options.dataset == "digits":
        parser.error(f"--images={options.images}: goes with --dataset cifar")
    return exit_code(functools.partial(run, options), "mdl")


def run(options: argparse.Namespace) -> int:
    """Measure the ways to train, and print the tables."""
    bench = TrainingBenchmark(options)
    rows = bench.compare(options.only)
    show(bench.title, rows if options.skip_peer else [*rows, *bench.peer()])
    if options.only is None or "rule" in options.only:
        bench.profile().show()
    return 0


def dataset(name: str, samples: int, root: str, device: torch.device) -> Mapping[str, DeviceImages]:
    """Return splits "train" and "validation" of the digits, or of `samples` images of CIFAR-10's size ("cifar")."""
    if name == "digits":
        raw = DIGITS.load()
        parts, most = splits(DIGITS, raw), raw.max_value
    else:
        held_out, most = max(1, samples // 10), 255
        images, labels, _ = labelled_images(32, samples + held_out, 10, root)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).split([held_out, samples])
        named = zip(("validation", "train"), order, strict=True)
        parts = {split: LabelledImages(images[index], labels[index]) for split, index in named}
    scaled = {split: LabelledImages(part.images.float() / most, part.labels) for split, part in parts.items()}
    train = scaled["train"].images
    erased = ErasedDataset(scaled, tuple(map(str, range(10))), {}, train.mean((0, 2, 3)), train.std((0, 2, 3)))
    return to_device(erased, crop_padding=0.125, flip=name != "digits", device=device)


class TrainingBenchmark:
    """The data, the model, and the settings: `conf/train/default.yaml`, for a fixed number of epochs."""

    def __init__(self, options: argparse.Namespace) -> None:
        keep_freed_memory()
        self.device = torch.device(options.device)
        data = dataset(options.dataset, options.samples, options.images, self.device)
        self.train, self.validation = data["train"], data["validation"]
        self.seeds = list(range(options.seeds))
        overrides = [f"model={options.model}"] + ([f"model.width={options.width}"] if options.width else [])
        config = composed("mdl", overrides, MdlConfig)
        epochs = {"max_epochs": options.epochs, "patience_steps": _FOREVER, "min_epoch_steps": 1}
        self.settings = dataclasses.replace(config.train, **epochs)
        self.model_section = config.model
        self._first_losses: Sequence[float] = ()
        self.subsets = torch.stack([permutation(seed, len(self.train)) for seed in self.seeds]).to(self.device)
        precision = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self.ensemble = Ensemble(self.model(), precision)
        rates = Device(product_rate(precision, self.device), memory_rate(self.device), precision.itemsize)
        steps = -(-len(self.train) // self.settings.batch_size)
        self.batch = len(self.train) // steps
        step = Step.of(self.model(), self.train.image_shape)
        self.floor = step.floor(self.batch, rates, options.seeds * options.epochs * steps)
        described = ", ".join(f"{key} {value}" for key, value in self.model_section.items() if key != "_target_")
        self.title = (
            f"{options.seeds} seeds of {described}\n{options.dataset}, {len(self.train):,} examples "
            f"{list(self.train.image_shape)}, {options.epochs} epochs of {steps} steps\n"
            f"{machine(self.device)}\n{str(precision)[6:]} products {rates.flops / 1e12:,.3g} TFLOP/s, "
            f"memory {rates.memory_bytes / 1e9:,.0f} GB/s\nfloor: {self.floor}"
        )

    def model(self) -> Classifier:
        return Target(self.model_section, Classifier).build(self.train.image_shape, 10).to(self.device)

    def compare(self, ways: Sequence[str] | None = None) -> list[Row]:
        """Measure seconds and mean validation loss of each way to train; one that fails says why in its row."""
        rows: list[Row] = []
        for way in ways or _DEFAULT_WAYS:
            rows += attempt("training", way, lambda way=way: filter(None, [self._measure(way)]))
        return rows

    def _measure(self, way: str) -> Row | None:
        """Return the row of one of `WAYS`, or None if this model or device does not have it."""
        compiled, way = way.startswith("compiled"), way.removeprefix("compiled").removeprefix("-") or "rule"
        stacking = self._chosen(self.settings)
        settings = dataclasses.replace(self.settings, compile=compiled)
        note = f"; {stacking.how}: {stacking.why}" if way == "rule" else ""
        if way == "other":
            other = "all" if stacking.stack == 1 else "one"
            stacking = self._chosen(dataclasses.replace(settings, stack=other))
        who = f"ours, {stacking.how}{', compiled' if compiled else ''}"
        match way:
            case "ungraphed" if self.device.type == "cuda":
                GraphedFunction.enabled = False
                try:
                    return self._ours(who, stacking, settings, note="; without CUDA graphs")
                finally:
                    GraphedFunction.enabled = True
            case "model" if self.model_section["name"] in _MODEL_WAYS:
                kind, attribute = type(self.ensemble.model), _MODEL_WAYS[str(self.model_section["name"])]
                setattr(kind, attribute, True)
                try:
                    ensemble = Ensemble(self.model(), self.ensemble.precision)
                    return self._ours(f"{who}, {attribute}", stacking, settings, note, ensemble)
                finally:
                    setattr(kind, attribute, False)
            case "nudged":
                nudged = _Nudged(self.model(), self.ensemble.precision)
                return self._ours(f"{who}, initial weights one rounding larger", stacking, settings, note, nudged)
            case "rule" | "other":
                return self._ours(who, stacking, settings, note)
        return None

    def peer(self) -> list[Row]:
        """Measure the DataLoader loop."""
        from scripts.benchmarks.plain_training import train_one  # needs schedulefree

        with measured(self.device) as cost:
            losses = [
                train_one(self.model(), self.train, self.validation, subset, seed, self.settings)
                for seed, subset in zip(self.seeds, self.subsets, strict=True)
            ]
        return [self._row("DataLoader loop", cost, losses)]

    def profile(self) -> Table:
        """Profile a step of the seeds that train at once, and time what the host does between steps."""
        stack = self._chosen(self.settings).stack
        part = LabelledImages(self.train.images[: self.batch], self.train.labels[: self.batch])
        zeros = torch.zeros(len(part.images[0]))
        batch = DeviceImages(part, zeros, zeros + 1, padding=0, flip=False, device=self.device)
        step = Case("", "", 0, self.ensemble, batch, self.settings).step(stack)
        table = profile_table(
            step, self.device, f"A step of {stack} of {len(self.seeds)} seeds on {self.batch} examples"
        )
        data = {"train": self.train, "validation": self.validation}
        idle = _WithoutSteps(self.ensemble, data, self.seeds[:stack], self.subsets[:stack], self.settings)
        between_ms = 1e3 * min(idle.seconds_between_steps() for _ in range(3))
        between = f"Between steps the host needs {shown(between_ms)} ms, for batches and the optimizer's coefficients."
        return dataclasses.replace(table, notes=[*table.notes, between])

    def _chosen(self, settings: TrainSettings) -> Stacking:
        return choose(self.ensemble, len(self.seeds), self.train, settings)

    def _ours(
        self,
        who: str,
        stacking: Stacking,
        settings: TrainSettings,
        note: str = "",
        ensemble: Ensemble | None = None,
    ) -> Row:

        def run(settings: TrainSettings) -> list[float]:
            data = {"train": self.train, "validation": self.validation}
            chosen = ensemble or self.ensemble
            fitted = fit_members(chosen, data, self.seeds, self.subsets, settings, stack=stacking.stack)
            return [curve.validation_loss_bits[-1] for curve in fitted.curves]

        with measured(self.device) as first:
            run(dataclasses.replace(settings, max_epochs=1))  # warms up
        if settings.compile is True:
            note += f"; compiled in {first.seconds:.0f} s, first epoch included"
        losses, cost = timed(run, self.device, lambda: [settings])
        return self._row(who, cost, losses, note)

    def _row(self, who: str, cost: Cost, losses: Sequence[float], note: str = "") -> Row:
        examples = len(self.seeds) * self.settings.max_epochs * len(self.train) / cost.seconds
        loss = f"validation {sum(losses) / len(losses):.3f} bits, {examples:,.0f} examples/s"
        if self._first_losses:
            loss += f", {shown(max(abs(a - b) for a, b in zip(losses, self._first_losses, strict=True)))} bits away"
        self._first_losses = self._first_losses or losses
        return Row("training", who, cost, self.floor, loss + note)


class _Nudged(Ensemble):
    """Members whose initial weights are one rounding larger."""

    def initial_weights(self, generators: Sequence[torch.Generator], device: torch.device) -> Weights:
        weights = super().initial_weights(generators, device)
        return {name: weight.nextafter(weight.new_tensor(math.inf)) for name, weight in weights.items()}


class _WithoutSteps(EpochTrainer):
    """A training whose steps compute nothing."""

    def seconds_between_steps(self) -> float:
        """Time the preparation of steps by the host, which does not wait for the device; mean over an epoch."""
        draws = self.order.draw(self.active, self.subsets.device)
        started = time.perf_counter()
        for losses in self._steps(draws):
            self.after_step(losses)
        return (time.perf_counter() - started) / self.order.steps

    def _new_step(self) -> TrainingStep:
        losses = torch.zeros(len(self.active), device=self.examples.labels.device)

        def step(*_: Tensor) -> Tensor:
            self.optimizer.next_coefficients()
            return losses

        return step


if __name__ == "__main__":
    raise SystemExit(main())
