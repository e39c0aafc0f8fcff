"""Short trainings with and without μP over widths, for the two tests of μP."""

import argparse
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from conf.groups import keys
from conf.target_class import Target
from erasure.dataset import LabelledImages
from erasure.progress import Display
from models.classifier import Classifier
from models.mup import Parametrization
from scripts import command_line
from train.device_images import DeviceImages
from train.ensemble import Ensemble, Weights
from train.randomness import generator
from train.schedule_free import ScheduleFree

T = TypeVar("T")
PARAMETRIZATIONS: tuple[Parametrization, ...] = ("mup", "standard")
TITLES = {"mup": "μP", "standard": "standard parametrisation"}


@dataclass(frozen=True)
class Architecture:
    """A model of `conf/model` with changed options."""

    name: str
    options: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> "Architecture":
        """Parse `convnextv2:depth=1`, `mlp:activation=gelu,depth=3`."""
        name, _, options = text.partition(":")
        pairs = (option.split("=", 1) for option in options.split(",") if option)
        return cls(name, {key: int(value) if value.isdigit() else value for key, value in pairs})

    def __str__(self) -> str:
        return ", ".join([self.name, *(f"{key} {value}" for key, value in self.options.items())])

    def at(self, width: int, parametrization: Parametrization) -> Classifier:
        section = {**keys("model", self.name), **self.options, "width": width, "parametrization": parametrization}
        return Target(section, Classifier).build((1, 8, 8), 10)


def argument_parser(name: str, doc: str | None, models: Sequence[str]) -> argparse.ArgumentParser:
    parser = command_line.argument_parser(f"studies.{name}", doc)
    parser.add_argument("--model", nargs="+", default=models, help="such as mlp:depth=4")
    parser.add_argument("--out", type=Path, default=Path(f"{name}.svg"), help="figure")
    return parser


def over_widths(
    title: str,
    architectures: Sequence[Architecture],
    widths: Callable[[str], Sequence[int]],
    measure: Callable[[Architecture, int, Parametrization], T],
) -> dict[tuple[str, Parametrization], dict[int, T]]:
    """Measure every architecture under both parametrisations, by width."""
    logging.getLogger("models").setLevel(logging.ERROR)  # warnings about collapsing stages
    pairs: list[tuple[Architecture, Parametrization]] = [(a, p) for a in architectures for p in PARAMETRIZATIONS]
    jobs = [(*pair, width) for pair in pairs for width in widths(pair[0].name)]
    results: dict[tuple[str, Parametrization], dict[int, T]] = {}
    with Display(title) as display:
        for done, (architecture, parametrization, width) in enumerate(jobs):
            display.update(done / len(jobs), f"{architecture}, {parametrization}, width {width}")
            measured = measure(architecture, width, parametrization)
            results.setdefault((str(architecture), parametrization), {})[width] = measured
    return results


class Steps:
    """Training steps of one or more seeds of a model, each on batches from its generator.

    Args:
        model: the architecture.
        seeds: they train in one network.
        data: images [n, C, H, W] and labels [n].
        lr: learning rate at base width and depth.
        warmup_steps: over which the learning rate rises from zero.
    """

    def __init__(
        self, model: Classifier, seeds: Sequence[int], data: tuple[Tensor, Tensor], lr: float, warmup_steps: int = 0
    ) -> None:
        self.ensemble, self.data = Ensemble(model), data
        initial = self.ensemble.initial_weights([generator(seed, "init") for seed in seeds], data[0].device)
        self.optimizer = ScheduleFree(initial, model.learning_rates(), lr=lr, warmup_steps=warmup_steps)
        self._batches = [generator(seed, "batches") for seed in seeds]

    @property
    def weights(self) -> Weights:
        """Parameters of all seeds, [S, ...] each."""
        return self.optimizer.weights

    def step(self) -> None:
        """Take one step of every seed, each on its batch of 64."""
        x, z = self.data
        index = torch.stack([torch.randint(len(z), (64,), generator=source) for source in self._batches])
        _, gradients = self.ensemble.gradients(self.weights, x[index], z[index])
        self.optimizer.step(gradients)

    def loss_bits(self) -> list[float]:
        """Return the loss of the averaged weights on all data, per seed."""
        unchanged = {"padding": 0, "flip": False, "device": self.data[0].device}
        images = DeviceImages(LabelledImages(*self.data), torch.zeros(1), torch.ones(1), **unchanged)
        return cast(list[float], self.ensemble.score(self.optimizer.averaged(), images).bits.tolist())
