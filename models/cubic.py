"""Logistic regression on degree-3 features: the model that must fail once third moments of classes are equal, too."""

import math

import torch
from torch import Tensor

from models.layers import Linear
from models.quadratic import QuadraticClassifier


class CubicClassifier(QuadraticClassifier):
    """Logits from all monomials of degree 1, 2 and 3, starting at zero: quadratic ones with products of three.

    Args:
        sketch: most dimensions whose products are formed; s of them have (s + 1) (s + 2) (s + 3) / 6 - 1 features.

    Raises:
        ValueError: a sketch of less than one dimension.
    """

    version = 1

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, sketch: int) -> None:
        super().__init__(input_shape, num_classes, sketch=sketch)
        quadratic, s = self.readout.weight.shape[1], min(math.prod(input_shape), sketch)
        self.register_buffer("triples", torch.combinations(torch.arange(s), 3, with_replacement=True).T.contiguous())
        self.readout = Linear(quadratic + self.get_buffer("triples").shape[1], num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Monomials of degree 1 to 3, [..., (s + 1) (s + 2) (s + 3) / 6 - 1], of flattened images [..., d]."""
        lower = super().features(x)
        first, second, third = self.get_buffer("triples")  # of the lower ones, those of degree 1 come first
        return torch.cat([lower, lower[..., first] * lower[..., second] * lower[..., third]], -1)
