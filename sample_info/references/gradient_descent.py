"""Full-batch gradient descent on squared loss: many trainings from the same weights as one."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from models.classifier import Classifier
from models.mlp import MLP
from sample_info.changes import Network, Weights, check_targets
from sample_info.references.input_layer import InputLayer, Inputs


class DivergedError(ValueError):
    """A training whose weights are not finite."""


@dataclass(frozen=True, kw_only=True)
class GradientDescent:
    """w ← w - η ∇L(w) for `steps` steps from `initial`, L(w) = Σ_i c_i ½‖f_w(x_i) - y_i‖² + λ/2 ‖w - w_0‖².

    The loss of Harutyunyan et al. 2021: a *sum* over examples, and weight decay towards w_0. Where η is meant for
    the mean loss, as in the paper's tables and released code, give η/n and nλ. Targets are the caller's choice; the
    released code has y = 0 and 1 in one column for two classes.

    Members differ in their example weights c alone, and run side by side: parameters have a leading axis [S, ...].
    What is stored and updated is w - w_0, so that rounding is relative to how far a training has come, which
    for a change by one example in a thousand is what counts.

    Attributes:
        network: f(w, x), to [n, k].
        initial: w_0.
        x: training inputs, [n, ...].
        y: targets, [n, k].
        steps: t.
        learning_rate: η, of the summed loss.
        weight_decay: λ.
        stackable: `network` also takes weights with a leading axis [S, ...] and gives [S, n, k], as stackable
            classifiers do; others are vectorised by `torch.func.vmap`.
        input_layer: a fully connected first layer, which can be followed with fewer operations, exactly.

    Raises:
        ValueError: targets that are not [n, k], or a number out of range.
    """

    network: Network
    initial: Weights
    x: Tensor
    y: Tensor
    steps: int
    learning_rate: float
    weight_decay: float = 0.0
    stackable: bool = False
    input_layer: InputLayer | None = None

    def __post_init__(self) -> None:
        check_targets(self.x, self.y)
        if self.steps < 1 or not 0 < self.learning_rate < math.inf or not 0 <= self.weight_decay < math.inf:
            raise ValueError(
                f"steps={self.steps}, learning_rate={self.learning_rate}, weight_decay={self.weight_decay}: "
                "need at least one step, a positive learning rate and no negative weight decay"
            )

    @classmethod
    def of(cls, model: Classifier, initial: Weights, x: Tensor, y: Tensor, **options: Any) -> Self:
        """Of one of our architectures, from weights `initial` (its own may be anything); options are those above.

        Raises:
            ValueError: an example's outputs depend on the others of its batch.
        """
        if model.mixes_examples:
            raise ValueError(f"{type(model).__name__} mixes examples (model.batch_norm=batch): set it to frozen")
        return cls(
            network=lambda weights, x: functional_call(model, weights, (x,)),
            initial=initial,
            x=x,
            y=y,
            stackable=model.stackable,
            input_layer=InputLayer.of(model) if isinstance(model, MLP) else None,
            **options,
        )

    @functools.cached_property
    def inputs(self) -> Inputs:
        """What is computed of the inputs once, for the input layers of all trainings."""
        return Inputs(self.x)

    def train(self, example_weights: Tensor, progress: Callable[[int], None] = lambda _: None) -> Weights:
        """How far S trainings move, w - w_0 with a leading axis [S, ...].

        Args:
            example_weights: c, [S, n]; 0 leaves an example out.
            progress: called with the number of steps done.

        Raises:
            DivergedError: the learning rate is too large.
        """
        c = example_weights.to(self.y)
        change = self._train(c, progress) if self.input_layer is None else self._train_by_layer(c, progress)
        if not all(moved.isfinite().all() for moved in change.values()):
            raise DivergedError(
                f"gradient descent diverged within {self.steps} steps: lower the learning rate, "
                f"{self.learning_rate:g} of the summed loss"
            )
        return change

    def trained(self) -> Weights:
        """Weights at the end of the training with all examples."""
        change = self.train(torch.ones(1, len(self.x)))
        return {name: self.initial[name] + moved[0] for name, moved in change.items()}

    def _train(self, c: Tensor, progress: Callable[[int], None]) -> Weights:
        members = _Members(self.initial, len(c), self.learning_rate, self.weight_decay)
        for step in range(self.steps):
            outputs = self.outputs(members.weights, self.x)
            members.step(torch.autograd.grad(outputs, list(members.weights.values()), self._slope(outputs, c)))
            progress(step + 1)
        return members.change

    def _train_by_layer(self, c: Tensor, progress: Callable[[int], None]) -> Weights:
        assert self.input_layer is not None
        others = {name: weight for name, weight in self.initial.items() if name != self.input_layer.weight}
        members = _Members(others, len(c), self.learning_rate, self.weight_decay)
        layer = self.inputs.shorter(self.inputs, self.initial[self.input_layer.weight].detach(), len(c))
        rest = {name: weight for name, weight in members.weights.items() if name != self.input_layer.bias}
        for step in range(self.steps):
            u = layer.outputs(members.weights[self.input_layer.bias].detach()).requires_grad_()
            outputs = self.input_layer.tail(rest, u)
            slope, *gradients = torch.autograd.grad(outputs, [u, *rest.values()], self._slope(outputs, c))
            by_name = dict(zip(rest, gradients, strict=True)) | {self.input_layer.bias: slope.sum(1)}
            members.step([by_name[name] for name in members.weights])
            layer.step(slope, self.learning_rate, members.keep)
            progress(step + 1)
        change = members.change | {self.input_layer.weight: layer.change}
        return {name: change[name] for name in self.initial}

    @torch.no_grad()
    def _slope(self, outputs: Tensor, c: Tensor) -> Tensor:
        """∂L/∂f: cheaper written down than derived."""
        return (outputs - self.y).mul_(c[:, :, None])

    def outputs(self, weights: Weights, x: Tensor) -> Tensor:
        """Outputs [S, n, k] of members with weights [S, ...] on inputs that they share."""
        return self.network(weights, x) if self.stackable else vmap(self.network, (0, None))(weights, x)

    def bytes_per_member(self) -> int:
        """Memory that each member of a stack takes while it is trained: w - w_0, w, gradient, saved activations."""
        saved = 0

        def count(tensor: Tensor) -> Tensor:
            nonlocal saved
            saved += tensor.numel() * tensor.element_size()
            return tensor

        weights = {name: weight.detach()[None].clone().requires_grad_() for name, weight in self.initial.items()}
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            self.outputs(weights, self.x)
        values = 4 * sum(weight.numel() for weight in self.initial.values())
        if self.input_layer is not None:
            values += 4 * len(self.x) * len(self.initial[self.input_layer.weight])  # its outputs instead of itself
        return saved + values * self.y.element_size()


class _Members:
    """Weights of S trainings, as leaves of autograd, and how far they have moved."""

    def __init__(self, initial: Weights, members: int, learning_rate: float, weight_decay: float) -> None:
        self._initial = {name: weight.detach() for name, weight in initial.items()}
        self._learning_rate, self.keep = learning_rate, 1 - learning_rate * weight_decay
        self.change = {name: weight.new_zeros(members, *weight.shape) for name, weight in self._initial.items()}
        self.weights = {name: (moved + self._initial[name]).requires_grad_() for name, moved in self.change.items()}

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """One step, gradients in the order of the weights."""
        for (name, moved), gradient in zip(self.change.items(), gradients, strict=True):
            if self.keep != 1:
                moved.mul_(self.keep)
            moved.sub_(gradient, alpha=self._learning_rate)
            torch.add(self._initial[name], moved, out=self.weights[name])
