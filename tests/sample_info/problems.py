"""Small problems on which references are checked: linear ones, whose answers are known, and a miniature MLP."""

from typing import Any

import torch
from torch import Tensor

from models.mlp import MLP
from models.tangent.jacobian import Weights
from sample_info import retraining
from sample_info.gradient_descent import GradientDescent
from sample_info.leave_one_out_effects import Changes


def draws(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def linear(weights: Weights, x: Tensor) -> Tensor:
    """f(w, x) = x Wᵀ + b, also of a stack of members."""
    return x @ weights["W"].mT + weights["b"].unsqueeze(-2)


def linear_problem(n: int = 12, d: int = 4, k: int = 1, **options: Any) -> GradientDescent:
    """Ridge regression, run until it has converged."""
    initial = {"W": draws(k, d, seed=0), "b": draws(k, seed=1)}
    chosen: dict[str, Any] = {"steps": 3000, "learning_rate": 0.02, "weight_decay": 0.5, "stackable": True} | options
    return GradientDescent(network=linear, initial=initial, x=draws(n, d, seed=2), y=draws(n, k, seed=3), **chosen)


def mlp_problem(
    n: int = 20, side: int = 4, width: int = 8, depth: int = 1, k: int = 1, **options: Any
) -> tuple[GradientDescent, Tensor]:
    """A miniature MLP whose readout is not zero, in float64, and 7 test inputs."""
    model = MLP((1, side, side), k, width=width, depth=depth, activation="relu", parametrization="standard").double()
    model.reset_parameters(torch.Generator().manual_seed(0))
    initial = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    initial["readout.weight"] = draws(k, width, seed=5) / width**0.5
    chosen: dict[str, Any] = {"steps": 40, "learning_rate": 0.2 / n, "weight_decay": 0.3} | options
    x = draws(n, 1, side, side, seed=6)
    descent = GradientDescent.of(model, initial, x, draws(n, k, seed=7), **chosen)
    return descent, draws(7, 1, side, side, seed=8)


def retrained(
    descent: GradientDescent, x_test: Tensor, examples: Tensor | None = None, memory_bytes: int = 2**31
) -> Changes:
    """Return leave-one-out changes of `examples`, by default of all."""
    n = len(descent.x)
    examples = torch.arange(n) if examples is None else examples
    effects = retraining.retrained(descent, x_test, examples[:, None], memory_bytes=memory_bytes)
    return effects.changes.among(n, examples)
