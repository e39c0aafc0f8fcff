"""What every architecture is: images in, class logits out, initialised from an explicit generator."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from models.stochastic_depth import StochasticDepth


class Classifier(nn.Module, ABC):
    """Base class. A subclass takes `input_shape` (C, H, W) and `num_classes`, then keyword-only options.

    Attributes:
        stackable: `forward` also accepts parameters with a leading member axis [S, ...] (through
            `torch.func.functional_call`), mapping images [S, B, C, H, W], or [B, C, H, W] shared by all
            members, to logits [S, B, k]. Members never mix.
    """

    stackable: ClassVar[bool] = False

    @abstractmethod
    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw fresh parameters; nothing else in the model is random at construction."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Images [B, C, H, W] to logits [B, k]."""

    def learning_rates(self) -> Mapping[str, float]:
        """For each parameter, the factor by which its learning rate differs from the run's."""
        return {name: 1.0 for name, _ in self.named_parameters()}

    @property
    def generator(self) -> torch.Generator | None:
        """What training draws stochastic depth from; None, the state of a new model, is evaluation."""
        return next((module.generator for module in self._stochastic()), None)

    @generator.setter
    def generator(self, generator: torch.Generator | None) -> None:
        for module in self._stochastic():
            module.generator = generator

    def _stochastic(self) -> list[StochasticDepth]:
        return [module for module in self.modules() if isinstance(module, StochasticDepth)]


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
