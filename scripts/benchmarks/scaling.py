"""What the two proofs of μP share: models by name and width, the digits, training steps with the run's optimiser."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from conf.groups import keys
from conf.schema import Target
from erasure.datasets.digits import Digits
from erasure.source import splits
from models.classifier import Classifier
from models.mup import Parametrization
from train.ensemble import Ensemble, Weights
from train.optimizer import ScheduleFree
from train.randomness import generator

PARAMETRIZATIONS: tuple[Parametrization, ...] = ("mup", "standard")
COLOURS = {"mup": "#0072B2", "standard": "#D55E00"}
TITLES = {"mup": "μP", "standard": "standard parametrisation"}


@dataclass(frozen=True)
class Architecture:
    """A model of `conf/model`, with options that differ from its YAML."""

    name: str
    options: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> "Architecture":
        """`convnextv2:depth=1`, `mlp:activation=gelu,depth=3`."""
        name, _, options = text.partition(":")
        pairs = (option.split("=", 1) for option in options.split(",") if option)
        return cls(name, {key: int(value) if value.isdigit() else value for key, value in pairs})

    def __str__(self) -> str:
        return ", ".join([self.name, *(f"{key} {value}" for key, value in self.options.items())])

    def at(self, width: int, parametrization: Parametrization, shape: tuple[int, int, int]) -> Classifier:
        section = {**keys("model", self.name), **self.options, "width": width, "parametrization": parametrization}
        return Target(section).build(Classifier, shape, 10)


def standardised_digits() -> tuple[Tensor, Tensor]:
    """The digits' training split: images [n, 1, 8, 8] of mean 0 and variance 1, labels [n]."""
    source = Digits(name="digits", flip=False, validation_size=None, test_fraction=0.2, split_seed=0)
    part = splits(source, source.load())["train"]
    images = part.images.float()
    return (images - images.mean()) / images.std(), part.labels


class Steps:
    """Training steps of one or more seeds of a model, on batches drawn by each seed's own generator.

    Args:
        model: the architecture.
        seeds: one for a model that is not stackable.
        data: images [n, C, H, W] and labels [n].
        lr: learning rate at base width and depth.
        batch_size: examples per seed and step.
        warmup_steps: over which the learning rate rises from zero.
    """

    def __init__(
        self,
        model: Classifier,
        seeds: Sequence[int],
        data: tuple[Tensor, Tensor],
        lr: float,
        *,
        batch_size: int = 64,
        warmup_steps: int = 0,
    ) -> None:
        self.ensemble, self.data, self.batch_size = Ensemble(model), data, batch_size
        initial = self.ensemble.initial_weights([generator(seed, "init") for seed in seeds], data[0].device)
        self.optimizer = ScheduleFree(initial, model.learning_rates(), lr=lr, warmup_steps=warmup_steps)
        self._batches = [generator(seed, "batches") for seed in seeds]

    @property
    def weights(self) -> Weights:
        """Of all seeds, [S, ...] each."""
        return self.optimizer.weights

    def step(self) -> None:
        """One step of every seed, each on a batch of its own."""
        x, z = self.data
        index = torch.stack([torch.randint(len(z), (self.batch_size,), generator=source) for source in self._batches])
        _, gradients = self.ensemble.gradients(self.weights, x[index], z[index])
        self.optimizer.step(gradients)

    def loss_bits(self) -> list[float]:
        """Of the averaged weights, on all of the data, per seed."""

        def fetch(index: Tensor) -> tuple[Tensor, Tensor]:
            return self.data[0][index], self.data[1][index]

        bits, _ = self.ensemble.score(self.optimizer.averaged(), fetch, torch.arange(len(self.data[1])), 2048)
        return cast(list[float], bits.tolist())
