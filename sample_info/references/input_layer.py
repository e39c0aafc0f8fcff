"""A fully connected first layer, trained as it acts on the training examples instead of as a matrix.

Its gradients are δᵀ X, so that W - W_0 = -Aᵀ X stays in the span of the inputs, whatever the other layers do. Two
exact ways to follow it with fewer operations than the 4 n d h of a step's products with W and for its gradient:

- by examples: U = X Wᵀ itself is what changes, by -η X Xᵀ δ: 2 n² h operations, and A sums up;
- by coordinates: X is written in r ≤ min(n, d) coordinates of its span, and W acts on those: 4 n r h operations.
"""

import functools
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call

from models.mlp import MLP
from sample_info.changes import Network, Weights

_LARGE = 2**24  # multiplications of a product that gains nothing from being batched


@dataclass(frozen=True)
class InputLayer:
    """The part of a network that inputs enter through: f(w, x) = tail(w, x Wᵀ + b), x flattened.

    Attributes:
        weight: name of W, [h, d].
        bias: name of b, [h].
        tail: the rest: weights and x Wᵀ + b, [n, h], to outputs [n, k]; all with a leading member axis, too.
    """

    weight: str
    bias: str
    tail: Network

    @classmethod
    def of(cls, model: MLP) -> "InputLayer":
        """An MLP's first layer."""
        rest = _AfterFirstLayer(model)

        def tail(weights: Weights, u: Tensor) -> Tensor:
            return functional_call(rest, {f"model.{name}": weight for name, weight in weights.items()}, (u,))

        return cls("hidden.0.weight", "hidden.0.bias", tail)


class _AfterFirstLayer(torch.nn.Module):
    def __init__(self, model: MLP) -> None:
        super().__init__()
        self.model = model

    def forward(self, u: Tensor) -> Tensor:
        return self.model.after_first_layer(u)


class Inputs:
    """Training inputs [n, ...] and what is computed of them once, for all trainings."""

    def __init__(self, x: Tensor) -> None:
        self.x = x.flatten(1)

    @functools.cached_property
    def gram(self) -> Tensor:
        """X Xᵀ, [n, n]."""
        return self.x @ self.x.T

    @functools.cached_property
    def span(self) -> tuple[Tensor, Tensor]:
        """Coordinates [n, r] and the orthonormal basis [r, d] that they refer to.

        Found in float64: what is left out is rounding of the inputs' own dtype or less.
        """
        flat = self.x.double()
        _, sizes, directions = torch.linalg.svd(flat, full_matrices=False)
        rounding = torch.finfo(torch.float64).eps * max(flat.shape) * sizes[:1]
        basis = directions[sizes > rounding]
        return (flat @ basis.T).to(self.x), basis.to(self.x)

    @functools.cached_property
    def shorter(self) -> "type[ByExamples] | type[ByCoordinates]":
        """Which way to follow the layer takes fewer operations."""
        return ByExamples if len(self.x) < 2 * len(self.span[1]) else ByCoordinates


class ByExamples:
    """S members' first layers as U = X Wᵀ, [S, n, h].

    Args:
        inputs: X.
        weight: W_0, [h, d].
        members: S.
    """

    def __init__(self, inputs: Inputs, weight: Tensor, members: int) -> None:
        self._x, self._gram = inputs.x, inputs.gram
        self._initial = self._x @ weight.T
        self._moved = torch.zeros_like(self._initial).repeat(members, 1, 1)  # U - U_0
        self._summed = torch.zeros_like(self._moved)  # A

    def outputs(self, bias: Tensor) -> Tensor:
        """x Wᵀ + b of every member, [S, n, h]; bias [S, h]."""
        return (self._moved + self._initial).add_(bias[:, None])

    def step(self, slope: Tensor, learning_rate: float, keep: float) -> None:
        """One step of gradient descent, `slope` [S, n, h] being the loss's gradient by x Wᵀ + b."""
        _add_products(self._moved, self._gram.expand(len(slope), -1, -1), slope, keep, -learning_rate)
        if keep != 1:
            self._summed.mul_(keep)
        self._summed.add_(slope, alpha=learning_rate)

    @property
    def change(self) -> Tensor:
        """W - W_0, [S, h, d]."""
        return -(self._summed.mT @ self._x)


class ByCoordinates:
    """S members' first layers as W - W_0 in coordinates of the inputs' span, [S, h, r]; arguments as above."""

    def __init__(self, inputs: Inputs, weight: Tensor, members: int) -> None:
        self._inputs, self._basis = inputs.span
        self._initial = inputs.x @ weight.T
        self._moved = weight.new_zeros(members, len(weight), len(self._basis))

    def outputs(self, bias: Tensor) -> Tensor:
        return (self._inputs @ self._moved.mT).add_(self._initial).add_(bias[:, None])

    def step(self, slope: Tensor, learning_rate: float, keep: float) -> None:
        _add_products(self._moved, slope.mT, self._inputs.expand(len(slope), -1, -1), keep, -learning_rate)

    @property
    def change(self) -> Tensor:
        return self._moved @ self._basis


def _add_products(to: Tensor, a: Tensor, b: Tensor, keep: float, factor: float) -> None:
    """to ← keep · to + factor · a b for every member; on the CPU large products one by one, which is faster."""
    if to.device.type == "cpu" and to[0].numel() * a.shape[-1] > _LARGE:
        for member, left, right in zip(to, a, b, strict=True):
            member.addmm_(left, right, beta=keep, alpha=factor)
    else:
        to.baddbmm_(a, b, beta=keep, alpha=factor)
