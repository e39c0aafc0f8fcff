"""Logistic regression on pixels: the model that must fail once class means are equal."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from models.classifier import Classifier
from models.layers import Linear


class LinearClassifier(Classifier):
    """Logits W x + b, starting at zero. A degree-1 polynomial predictor (Definition 2.1)."""

    version = 1
    stackable: ClassVar[bool] = True

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        self.readout = Linear(math.prod(input_shape), num_classes)

    def reset_parameters(self, generator: torch.Generator) -> None:
        self.readout.reset_parameters(generator, gain=0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(x.flatten(-3))
