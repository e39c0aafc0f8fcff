"""Products with the curvature of a sum of squared losses, and the gradients of single examples, as matrices of rows."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad, jvp, vjp, vmap

from sample_info.leave_one_out import Network, Weights

Product = Callable[[Tensor], Tensor]  # rows [m, P] to rows [m, P]


@dataclass(frozen=True)
class SquaredLoss:
    """Σ_i ½‖f_w(x_i) - y_i‖² at weights w, its derivatives taken as rows of P numbers, one per parameter.

    Attributes:
        network: f(w, x), to [n, k].
        weights: w.
        x: inputs, [n, ...].
        y: targets, [n, k].
    """

    network: Network
    weights: Weights
    x: Tensor
    y: Tensor

    @property
    def num_parameters(self) -> int:
        return sum(weight.numel() for weight in self.weights.values())

    def unravel(self, row: Tensor) -> Weights:
        """[P] as weights."""
        parts = row.split([weight.numel() for weight in self.weights.values()])
        return {name: part.view(w.shape) for part, (name, w) in zip(parts, self.weights.items(), strict=True)}

    @staticmethod
    def ravel(weights: Weights) -> Tensor:
        """Weights as [P]."""
        return torch.cat([weight.reshape(-1) for weight in weights.values()])

    def gradients(self, examples: Tensor) -> Tensor:
        """∇ ½‖f_w(x_i) - y_i‖² of each of some examples [m], as rows [m, P]."""

        def loss(weights: Weights, x: Tensor, y: Tensor) -> Tensor:
            return 0.5 * (self.network(weights, x[None])[0] - y).square().sum()

        def row(x: Tensor, y: Tensor) -> Tensor:
            return self.ravel(grad(loss)(self.weights, x, y))

        return vmap(row)(self.x[examples], self.y[examples])

    def gauss_newton(self, x: Tensor | None = None) -> Product:
        """v ↦ Jᵀ J v, J the Jacobian of all outputs on `x` (the training inputs by default)."""
        forward, at = self._outputs(self.x if x is None else x), (self.weights,)
        backward = vjp(forward, *at)[1]

        def product(row: Tensor) -> Tensor:
            return self.ravel(backward(jvp(forward, at, (self.unravel(row),))[1])[0])

        return vmap(product)

    def hessian(self, rows: Tensor | None = None) -> Product:
        """v ↦ ∇²L v of the loss over the training examples, or over those at `rows`."""
        x, y = (self.x, self.y) if rows is None else (self.x[rows], self.y[rows])

        def loss(weights: Weights) -> Tensor:
            return 0.5 * (self.network(weights, x) - y).square().sum()

        def product(row: Tensor) -> Tensor:
            return self.ravel(jvp(grad(loss), (self.weights,), (self.unravel(row),))[1])

        return vmap(product)

    def change_of_outputs(self, rows: Tensor, x: Tensor) -> Tensor:
        """J v for each of rows v [m, P], J the Jacobian of the outputs on `x` [b, ...]: [m, b, k]."""
        forward = self._outputs(x)
        return vmap(lambda row: jvp(forward, (self.weights,), (self.unravel(row),))[1])(rows)

    def _outputs(self, x: Tensor) -> Callable[[Weights], Tensor]:
        return lambda weights: self.network(weights, x)
