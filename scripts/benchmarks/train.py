"""Seconds of training several seeds, beside the loop that a researcher would write and our engine seed by seed.

    uv run python -m scripts.benchmarks.train --model mlp --dataset digits
    uv run python -m scripts.benchmarks.train --model lenet --dataset cifar --samples 4000 --epochs 2

Same examples, batch size, epochs, initial weights and validation losses (printed). The floor is the FLOPs of all
matrix products and convolutions, as PyTorch counts them, at the rate of a square product measured first.
"""

import argparse
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from conf.compose import composed
from conf.schema import Target
from mdl.__main__ import VERB
from models.classifier import Classifier
from scripts.benchmarks.benchmark import Row, fastest, machine, matmul_rate, measured, save, show, timed
from scripts.benchmarks.train_data import dataset
from scripts.benchmarks.train_peer import batches, train_one
from train.early_stopping import MemberCurve
from train.ensemble import Ensemble
from train.fit import fit
from train.memory import keep_freed_memory
from train.randomness import generator, permutation
from train.settings import TrainSettings
from train.stacking import Stacking, choose
from train.training import Training


def main(arguments: Sequence[str] | None = None) -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m scripts.benchmarks.train", description=__doc__, formatter_class=formatter
    )
    parser.add_argument("--model", default="mlp", help="of conf/model (default: %(default)s)")
    parser.add_argument("--width", type=int, help="default: the model's")
    parser.add_argument("--dataset", choices=("digits", "cifar"), default="digits", help="default: %(default)s")
    parser.add_argument("--samples", type=int, default=4000, help="CIFAR-size images (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=5, help="how many (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--device", default="cpu", help="default: %(default)s")
    parser.add_argument("--skip-peer", action="store_true", help="leave out the researcher's loop")
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    options = parser.parse_args(arguments)
    if min(options.seeds, options.epochs, options.samples // 100) < 1:
        parser.error("--seeds and --epochs must be at least 1, --samples at least 100")
    bench = Bench(options)
    rows = bench.compare(skip_peer=options.skip_peer) + bench.breakdown()
    show(bench.title, rows)
    if options.json:
        described = {"title": bench.title, "model": options.model, "dataset": options.dataset, "seeds": options.seeds}
        save(options.json, described, rows)
    return 0


class Bench:
    """The data, the model, and the settings: `conf/train/default.yaml`, for a fixed number of epochs."""

    def __init__(self, options: argparse.Namespace) -> None:
        keep_freed_memory()
        self.device = torch.device(options.device)
        self.data = dataset(options.dataset, options.samples, self.device)
        self.seeds = list(range(options.seeds))
        overrides = [f"model={options.model}"] + ([f"model.width={options.width}"] if options.width else [])
        config = composed("mdl", overrides, VERB.sections)
        epochs = {"max_epochs": options.epochs, "patience_steps": 10**9, "min_epoch_steps": 1}
        self.settings = TrainSettings(**{**config["train"], **epochs})
        self.model_section = config["model"]
        total = len(self.data["train"])
        self.subsets = torch.stack([permutation(seed, total) for seed in self.seeds]).to(self.device)
        precision = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self.ensemble = Ensemble(self.model(), precision)
        rate_of = matmul_rate(1024, precision, self.device)
        self.floor = options.epochs * self._step_flops() * self._steps() / rate_of
        described = ", ".join(f"{key} {value}" for key, value in self.model_section.items() if key != "_target_")
        self.title = (
            f"{options.seeds} seeds of {described}\n{options.dataset}, {total:,} examples "
            f"{list(self.data['train'].image_shape)}, {options.epochs} epochs of {self._steps()} steps\n"
            f"{machine(self.device)}\nproduct of 1,024 x 1,024 {rate_of / 1e9:,.0f} GFLOP/s"
        )

    def model(self) -> Classifier:
        shape = self.data["train"].image_shape
        return Target(self.model_section).build(Classifier, shape, 10).to(self.device)

    def compare(self, *, skip_peer: bool) -> list[Row]:
        """Ours, ours seed by seed, and the researcher's loop: seconds and mean validation loss."""
        stacking = choose(self.ensemble, len(self.seeds), self.data["train"], self.settings)
        ours, loss = self._ours(stacking)
        rows = [self._row("ours", ours, ours, loss, f"; {stacking.how}: {stacking.why}")]
        others = {"one", "all"} - {stacking.setting} - (set() if self.ensemble.stacks else {"all"})
        for setting in sorted(others, reverse=True):
            other = choose(self.ensemble, len(self.seeds), self.data["train"], self._with(stack=setting))
            seconds, loss = self._ours(other)
            rows.append(self._row(f"ours, {other.how}", seconds, ours, loss))
        if not skip_peer:
            with measured(self.device) as cost:
                curves = [
                    train_one(self.model(), self.data["train"], self.data["validation"], subset, seed, self.settings)
                    for seed, subset in zip(self.seeds, self.subsets, strict=True)
                ]
            rows.append(self._row("DataLoader loop", cost.seconds, ours, sum(c[-1] for c in curves) / len(curves)))
            with measured(self.device) as cost:
                for _ in batches(self.data["train"], self.subsets[0], 0, self.settings):
                    pass
            rows.append(Row("  its loader alone", "", len(self.seeds) * self.settings.max_epochs * cost.seconds))
        return rows

    def _with(self, **settings: Any) -> TrainSettings:
        return dataclasses.replace(self.settings, **settings)

    def _ours(self, stacking: Stacking) -> tuple[float, float]:

        def run(settings: TrainSettings) -> Sequence[MemberCurve]:
            splits = self.data["train"], self.data["validation"]
            return fit(self.ensemble, self.seeds, self.subsets, *splits, settings, stack=stacking.stack).curves

        run(self._with(max_epochs=1))  # warms up
        curves, cost = timed(run, lambda: self.settings, self.device)
        return cost.seconds, sum(curve.validation_loss_bits[-1] for curve in curves) / len(curves)

    def _row(self, who: str, seconds: float, ours: float, loss: float, note: str = "") -> Row:
        examples = len(self.seeds) * self.settings.max_epochs * self.subsets.shape[1] / seconds
        note = f"validation {loss:.3f} bits, {examples:,.0f} examples/s{note}"
        return Row("training", who, seconds, seconds / ours, floor_seconds=self.floor, note=note)

    def breakdown(self) -> list[Row]:
        """Where a training's time goes, each part timed alone, and what is left."""
        stack = choose(self.ensemble, len(self.seeds), self.data["train"], self.settings).stack
        training = Training(
            self.ensemble, self.seeds[:stack], self.subsets[:stack], self.data["train"], self.data["validation"],
            self.settings,
        )  # fmt: skip
        stacks = len(self.seeds) // stack
        order, weights, train = training.order, training.optimizer.weights, self.data["train"]
        positions, views = order.draw(training.active, self.device)
        index = self.subsets[torch.arange(stack, device=self.device)[:, None, None], positions].transpose(0, 1)
        views = views.transpose(0, 1)
        x, z = train.augmented(index[0], views[0])
        _, gradients = self.ensemble.gradients(weights, x, z)

        def forward() -> None:
            with torch.no_grad(), self.ensemble.autocast(self.device):
                self.ensemble.logits(weights, x)

        steps = order.steps
        per_epoch = {
            "forward": steps * fastest(forward, self.device, repeats=20),
            "forward, loss, backward": steps
            * fastest(lambda: self.ensemble.gradients(weights, x, z), self.device, repeats=20),
            "optimiser": steps * fastest(lambda: training.optimizer.step(gradients), self.device, repeats=20),
            "drawing order and views": fastest(lambda: order.draw(training.active, self.device), self.device),
            "gathering, crops, flips": fastest(
                lambda: [train.augmented(index[s : s + 2], views[s : s + 2]) for s in range(0, steps, 2)], self.device
            ),
            "evaluation": fastest(training.evaluate, self.device),
        }
        training = Training(
            self.ensemble, self.seeds[:stack], self.subsets[:stack], self.data["train"], self.data["validation"],
            self._with(max_epochs=1000, patience_steps=10**9),
        )  # fmt: skip
        training.evaluate()
        training.run_epoch()
        times = []
        for _ in range(3):
            started = time.perf_counter()
            training.run_epoch()
            training.evaluate()
            times.append(time.perf_counter() - started)
        whole = min(times)
        per_epoch["everything else"] = max(0.0, whole - sum(list(per_epoch.values())[1:]))
        rows = [Row("an epoch", "ours", stacks * whole, floor_seconds=self.floor / self.settings.max_epochs)]
        for name, seconds in per_epoch.items():
            rows.append(Row(f"  {name}", "ours", stacks * seconds, note=f"{seconds / whole:.0%}"))
        return rows

    def _steps(self) -> int:
        return -(-self.subsets.shape[1] // self.settings.batch_size)

    def _step_flops(self) -> int:
        """FLOPs of one optimiser step of all seeds; products only."""
        weights = self.ensemble.initial_weights([generator(0, "flops")], self.device)
        leaves = {name: weight.requires_grad_() for name, weight in weights.items()}
        batch = torch.arange(self.subsets.shape[1] // self._steps(), device=self.device)[None]
        with FlopCounterMode(display=False) as counter:
            self.ensemble.gradients(leaves, *self.data["train"].plain(batch))
        return len(self.seeds) * counter.get_total_flops()


if __name__ == "__main__":
    raise SystemExit(main())
