"""Logistic regression on monomials of pixels, which fails once class moments up to its degree are equal."""

import functools
import math
from typing import ClassVar

import torch
from torch import Tensor

from models.classifier import Classifier
from models.stackable_layers import Linear


class PolynomialClassifier(Classifier):
    """Logits from all monomials of degree 1 to `degree`, starting at zero (Quirke & Belrose 2025, definition 2.1).

    Images of more than `sketch` values are first projected onto that many fixed random orthonormal directions. Their
    monomials are still polynomials of the same degree in the pixels, so that theorem 2.2 holds for them as well.

    Args:
        degree: highest degree; 1 is logistic regression on pixels.
        sketch: maximum number of dimensions whose products are formed; None for all. In s dimensions there are
            (s + p)! / (s! p!) - 1 monomials of degrees 1 to p.

    Raises:
        ValueError: a degree or a sketch below 1.
    """

    version = 1
    stackable: ClassVar[bool] = True

    def __init__(
        self, input_shape: tuple[int, int, int], num_classes: int, *, degree: int = 1, sketch: int | None = None
    ) -> None:
        super().__init__()
        if degree < 1:
            raise ValueError(f"model.degree={degree}: need at least 1")
        if sketch is not None and sketch < 1:
            raise ValueError(f"model.sketch={sketch}: need at least 1 dimension")
        d = math.prod(input_shape)
        s = d if sketch is None else min(d, sketch)
        directions = None
        if s < d:
            fixed = torch.Generator().manual_seed(0)  # part of the architecture, like a convolution's stride
            directions = torch.linalg.qr(torch.randn(d, s, generator=fixed)).Q * math.sqrt(d / s)
        self.register_buffer("directions", directions)
        self._degree = degree
        for p in range(2, degree + 1):
            factors = torch.combinations(torch.arange(s), p, with_replacement=True).T.contiguous()
            self.register_buffer(f"factors_{p}", factors)
        self.readout = Linear(math.comb(s + degree, degree) - 1, num_classes)

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Set the weights to zero."""
        self.readout.reset_parameters(generator, gain=0.0)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] to logits [B, k]."""
        return self.readout(self.features(x.flatten(-3)))

    def features(self, x: Tensor) -> Tensor:
        """Compute the monomials, [..., f], of flattened images [..., d]."""
        if isinstance(self.directions, Tensor):
            x = x @ self.directions
        monomials = [x]
        for p in range(2, self._degree + 1):
            factors = (x[..., indices] for indices in self.get_buffer(f"factors_{p}"))
            monomials.append(functools.reduce(torch.mul, factors))
        return torch.cat(monomials, -1)
