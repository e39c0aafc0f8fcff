"""Full-batch gradient descent on squared loss: many trainings from the same weights as one."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap

from sample_info.leave_one_out import Network, Weights, check_targets
from sample_info.span import InputSpan


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
        input_layer: name of a weight [h, d] through which alone the flattened inputs enter, as x Wᵀ (an MLP's first
            layer). It moves within the span of the training inputs only, and is then trained in
            coordinates of that span: the same training in fewer operations where inputs span less than d dimensions.

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
    input_layer: str | None = None

    def __post_init__(self) -> None:
        check_targets(self.x, self.y)
        if self.steps < 1 or not 0 < self.learning_rate < math.inf or not 0 <= self.weight_decay < math.inf:
            raise ValueError(
                f"steps={self.steps}, learning_rate={self.learning_rate}, weight_decay={self.weight_decay}: "
                "need at least one step, a positive learning rate and no negative weight decay"
            )

    @functools.cached_property
    def span(self) -> InputSpan | None:
        """Coordinates for the input layer, where they save something."""
        if self.input_layer is None:
            return None
        span = InputSpan.of(self.x)
        return span if span.saves else None

    def train(self, example_weights: Tensor, progress: Callable[[int], None] = lambda _: None) -> Weights:
        """How far S trainings move, w - w_0 with a leading axis [S, ...].

        Args:
            example_weights: c, [S, n]; 0 leaves an example out.
            progress: called with the number of steps done.

        Raises:
            DivergedError: the learning rate is too large.
        """
        x, initial = self.x, {name: weight.detach() for name, weight in self.initial.items()}
        if self.span is not None and self.input_layer is not None:
            x = self.span.inputs
            initial[self.input_layer] = self.span.project(initial[self.input_layer])
        change = self._train(x, initial, example_weights.to(self.y), progress)
        if self.span is not None and self.input_layer is not None:
            change[self.input_layer] = self.span.lift(change[self.input_layer])
        if not all(moved.isfinite().all() for moved in change.values()):
            raise DivergedError(
                f"gradient descent diverged within {self.steps} steps: lower the learning rate, "
                f"{self.learning_rate:g} of the summed loss"
            )
        return change

    def _train(self, x: Tensor, initial: Weights, c: Tensor, progress: Callable[[int], None]) -> Weights:
        change = {name: weight.new_zeros(len(c), *weight.shape) for name, weight in initial.items()}
        weights = {name: (moved + initial[name]).requires_grad_() for name, moved in change.items()}
        keep = 1 - self.learning_rate * self.weight_decay
        for step in range(self.steps):
            outputs = self.outputs(weights, x)
            with torch.no_grad():  # d L / d outputs: cheaper written down than derived
                slope = (outputs - self.y).mul_(c[:, :, None])
            gradients = torch.autograd.grad(outputs, list(weights.values()), slope)
            with torch.no_grad():
                for (name, moved), gradient in zip(change.items(), gradients, strict=True):
                    if self.weight_decay:
                        moved.mul_(keep)
                    moved.sub_(gradient, alpha=self.learning_rate)
                    torch.add(initial[name], moved, out=weights[name])
            progress(step + 1)
        return change

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
        return saved + 4 * sum(weight.numel() * weight.element_size() for weight in self.initial.values())
