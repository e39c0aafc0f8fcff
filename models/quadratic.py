"""Logistic regression on degree-2 features: the model that must fail once class covariances are equal."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from models.classifier import Classifier
from models.layers import Linear


class QuadraticClassifier(Classifier):
    """Logits from all monomials of degree 1 and 2, starting at zero. A degree-2 polynomial predictor (Definition 2.1).

    Images of more than `sketch` values are first projected onto that many fixed random orthonormal directions:
    their monomials are still polynomials of degree 2 in the pixels, so that Theorem 2.2 holds for them as well.

    Args:
        sketch: most dimensions whose products are formed; s of them have s (s + 3) / 2 features.

    Raises:
        ValueError: a sketch of less than one dimension.
    """

    version = 1
    stackable: ClassVar[bool] = True

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, sketch: int) -> None:
        super().__init__()
        if sketch < 1:
            raise ValueError(f"model.sketch={sketch}: need at least 1 dimension")
        d = math.prod(input_shape)
        directions = None
        if d > sketch:
            fixed = torch.Generator().manual_seed(0)  # part of the architecture, like a convolution's stride
            directions = torch.linalg.qr(torch.randn(d, sketch, generator=fixed)).Q * math.sqrt(d / sketch)
        self.register_buffer("directions", directions)
        s = min(d, sketch)
        rows, columns = torch.triu_indices(s, s)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)
        self.readout = Linear(s + len(rows), num_classes)

    def reset_parameters(self, generator: torch.Generator) -> None:
        self.readout.reset_parameters(generator, gain=0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.features(x.flatten(-3)))

    def features(self, x: Tensor) -> Tensor:
        """Monomials of degree 1 and 2, [..., s (s + 3) / 2], of flattened images [..., d]."""
        if isinstance(self.directions, Tensor):
            x = x @ self.directions
        assert isinstance(self.rows, Tensor)
        assert isinstance(self.columns, Tensor)
        return torch.cat([x, x[..., self.rows] * x[..., self.columns]], -1)
