"""Base classes of predictors and of networks: images in, class logits out, initialised from a generator."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from models.stochastic_depth import StochasticDepth


class Model(ABC):
    """A predictor of labels. A subclass takes `input_shape` (C, H, W) and `num_classes` k, then options.

    Options are keyword-only.

    Attributes:
        version: raised by every change of the model's results, and part of a run's identity. A subclass without a
            version is identified by its source (`erasure.code_identity`).
        optional: options that a configuration may leave out.
    """

    version: ClassVar[int]
    optional: ClassVar[Collection[str]] = ()

    @classmethod
    def identity(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options that determine a model's numbers; for files, their content and not their path."""
        return options

    @classmethod
    def unread_options(cls, options: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG003, an override may use them
        """Return options that have no effect under the other options, each with its reader: NAME=VALUE, or words."""
        return {}


class Classifier(nn.Module, Model):
    """Base class of networks; `models.any_module` makes one of any `torch.nn.Module`.

    Attributes:
        stackable: its layers also accept parameters with a leading member axis [S, ...], so that `forward` maps images
            [S, B, C, H, W], or [B, C, H, W] shared by all members, to logits [S, B, k]. Members never mix. Members of a
            network that is not stackable run together by `torch.func.vmap` on request (`train.ensemble`).
    """

    stackable: ClassVar[bool] = False

    @abstractmethod
    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw new parameters; nothing else in the model is random at construction."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] to logits [B, k]."""

    def learning_rates(self) -> Mapping[str, float]:
        """Return the factor on the run's learning rate for each parameter."""
        return {name: 1.0 for name, _ in self.named_parameters()}

    def stochastic_depth(self) -> list[StochasticDepth]:
        """Return the modules that drop branches in training, in the order in which `forward` calls them."""
        return [module for module in self.modules() if isinstance(module, StochasticDepth)]


def is_repeatable(model: Classifier) -> bool:
    """Return whether a network draws equal weights from equal generators."""
    draws = []
    for _ in range(2):
        model.reset_parameters(torch.Generator().manual_seed(0))
        draws.append([parameter.detach().clone() for parameter in model.parameters()])
    return all(torch.equal(*pair) for pair in zip(*draws, strict=True))


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def require_images(input_shape: tuple[int, int, int], model: str, smallest: int) -> None:
    """Refuse vectors, and images with a side below `smallest`.

    Raises:
        ValueError: vectors or smaller images; the message says what the data has and what the model needs.
    """
    values, *sides = input_shape
    if max(sides) == 1:
        raise ValueError(
            f"vectors of {values} values are not images, which {model} needs: choose model=mlp, linear or quadratic"
        )
    if min(sides) < smallest:
        raise ValueError(f"images of {sides[0]}×{sides[1]}: {model} needs sides of at least {smallest}")
