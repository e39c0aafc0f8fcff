"""Gradient descent from one initialisation: many trainings at once, each on some of the examples."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from models.classifier import Classifier
from models.tangent.jacobian import Network, Weights

_CACHED_BYTES = 2**26  # on the CPU larger stacks exceed the caches, and are no faster


@dataclass(frozen=True, kw_only=True)
class GradientDescent:
    """w ← w - η ∇L(w) for `steps` steps from `initial`, L(w) = Σ_i ½‖f_w(x_i) - y_i‖² + λ/2 ‖w - w_0‖².

    The loss of Harutyunyan et al. 2021: a *sum* over examples, and weight decay towards w_0. For an η of the mean loss,
    as in the paper's tables and released code, pass η/n and nλ. The released code has targets 0 and 1 in one column for
    two classes.

    S members differ only in the examples that they sum over, and are trained together: parameters have a leading axis
    [S, ...]. The state is w - w_0: rounding is relative to the movement, as small changes by one example require.

    A `stackable` network also maps weights [S, ...] to outputs [S, n, k], as stackable classifiers do; others are
    vectorised by `torch.func.vmap`.
    """

    network: Network  # f(w, x), to [n, k]
    initial: Weights  # w_0
    x: Tensor  # training inputs, [n, ...]
    y: Tensor  # targets, [n, k]
    steps: int  # t
    learning_rate: float  # η, of the summed loss
    weight_decay: float = 0.0  # λ
    stackable: bool = False

    @classmethod
    def of(cls, model: Classifier, initial: Weights, x: Tensor, y: Tensor, **options: Any) -> Self:
        """Return the training of a classifier, from weights `initial`."""
        options["stackable"] = model.stackable
        return cls(network=lambda w, x: functional_call(model, w, (x,)), initial=initial, x=x, y=y, **options)

    def train(self, parts: Tensor, progress: Callable[[int], object] = lambda _: None) -> Weights:
        """Return w - w_0, [S, ...], after S trainings, each on the examples at its positions, [S, b]."""
        parts = parts.to(self.x.device)
        x, y = self.x[parts], self.y[parts]
        initial = {name: weight.detach() for name, weight in self.initial.items()}
        change = {name: weight.new_zeros(len(parts), *weight.shape) for name, weight in initial.items()}
        weights = {name: (moved + initial[name]).requires_grad_() for name, moved in change.items()}
        for step in range(self.steps):
            outputs = self.outputs(weights, x)
            residuals = outputs.detach() - y  # ∂L/∂f in closed form, cheaper than autograd
            gradients = torch.autograd.grad(outputs, list(weights.values()), residuals)
            with torch.no_grad():
                for (name, moved), gradient in zip(change.items(), gradients, strict=True):
                    moved.mul_(1 - self.learning_rate * self.weight_decay).sub_(gradient, alpha=self.learning_rate)
                    torch.add(initial[name], moved, out=weights[name])
            progress(step + 1)
        if not all(moved.isfinite().all() for moved in change.values()):
            raise ValueError(
                f"gradient descent diverged within {self.steps} steps: lower the learning rate, "
                f"{self.learning_rate:g} of the summed loss"
            )
        return change

    @property
    def everything(self) -> Tensor:
        """The positions of all examples, [1, n]: one member's part."""
        return torch.arange(len(self.x))[None]

    def trained(self) -> Weights:
        """Return the final weights of the training on all examples."""
        return {name: self.initial[name] + moved[0] for name, moved in self.train(self.everything).items()}

    def outputs(self, weights: Weights, x: Tensor) -> Tensor:
        """Return outputs [S, n, k] of members with weights [S, ...] on inputs [n, ...] (shared) or [S, n, ...]."""
        per_member = x.ndim > self.x.ndim
        return (
            self.network(weights, x)
            if self.stackable
            else vmap(self.network, (0, 0 if per_member else None))(weights, x)
        )

    @torch.no_grad()
    def predictions(self, change: Weights, x: Tensor) -> Tensor:
        """Return outputs [S, m, k] of members at the initial weights plus `change` [S, ...]."""
        weights = {name: self.initial[name] + moved for name, moved in change.items()}
        return torch.cat([self.outputs(weights, part) for part in x.split(len(self.x))], dim=1)

    def bytes_per_member(self) -> int:
        """Return the memory per member during training: w - w_0, w, gradient, saved activations."""
        saved: list[int] = []

        def count(tensor: Tensor) -> Tensor:
            saved.append(tensor.numel() * tensor.element_size())
            return tensor

        weights = {name: weight.detach()[None].clone().requires_grad_() for name, weight in self.initial.items()}
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            self.outputs(weights, self.x)
        return sum(saved) + 4 * sum(weight.numel() for weight in self.initial.values()) * self.y.element_size()

    def members_at_once(self, memory_bytes: int) -> int:
        """Return the number of members that fit into memory and, on the CPU, into its caches.

        Raises:
            ValueError: not even one member fits into memory.
        """
        each = self.bytes_per_member()
        if each > memory_bytes:
            raise ValueError(
                f"memory_bytes={memory_bytes:,}: one training needs {each:,}; allow more, or use fewer examples"
            )
        usable = min(memory_bytes, _CACHED_BYTES) if self.x.device.type == "cpu" else memory_bytes
        return max(1, usable // each)
