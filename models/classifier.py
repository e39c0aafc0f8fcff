"""What every architecture is: images in, class logits out, initialised from an explicit generator."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn


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


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
