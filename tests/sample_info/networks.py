"""Small networks with weights away from zero, and data, for the tests of sample information."""

from dataclasses import dataclass

import torch
from torch import Tensor

from models.classifier import Classifier
from models.mlp import MLP
from models.tangent.jacobian import network_outputs
from models.tangent.kernel import ntk
from sample_info.linearized.descent import LinearizedDescent
from sample_info.linearized.dynamics import LinearizedDynamics
from sample_info.training_problem import TrainingProblem
from tests.models.every_model import EVERY, SMALL


@dataclass(frozen=True)
class Linearization:
    """A network, its w_0 and data: everything that scores depend on."""

    model: Classifier
    weights: dict[str, Tensor]
    x: Tensor
    y: Tensor
    held_out: Tensor

    def problem(self, descent: LinearizedDescent) -> TrainingProblem:
        """Its training, in float64, so that a plain one gives the same to many digits."""
        weights = {name: weight.double() for name, weight in self.weights.items()}
        x, held_out = self.x.double(), self.held_out.double()
        return TrainingProblem(self.model.double(), weights, x, self.y, held_out, descent, 0, memory_bytes=1e9)


def linearized(net: Linearization, descent: LinearizedDescent) -> tuple[LinearizedDynamics, Tensor]:
    kernels = ntk(net.model, net.weights, net.x, net.held_out)
    residual = network_outputs(net.model, net.weights, net.x) - net.y
    return LinearizedDynamics(kernels.train, residual, descent), kernels.held_out


def away_from_zero(model: Classifier, seed: int = 0) -> dict[str, Tensor]:
    """Fresh weights, then nudged: readouts start at zero, where most gradients are."""
    generator = torch.Generator().manual_seed(seed)
    model.reset_parameters(generator)
    return {name: p.detach() + 0.05 * torch.randn(p.shape, generator=generator) for name, p in model.named_parameters()}


def some_network(name: str, n: int = 6, m: int = 4) -> Linearization:
    """Any architecture of `every_model` with ten outputs, on noise images."""
    model = EVERY[name]()
    generator = torch.Generator().manual_seed(1)
    x, held_out = (torch.randn(size, *SMALL, generator=generator) for size in (n, m))
    y = torch.randn(n, 10, generator=generator, dtype=torch.float64)
    return Linearization(model, away_from_zero(model), x, y, held_out)


def small_mlp(k: int, n: int = 12, m: int = 5) -> Linearization:
    """An MLP of k outputs."""
    model = MLP((1, 4, 4), k, width=16, depth=1, activation="relu", parametrization="standard")
    generator = torch.Generator().manual_seed(2)
    x, held_out = (torch.randn(size, 1, 4, 4, generator=generator) for size in (n, m))
    y = torch.randn(n, k, generator=generator, dtype=torch.float64)
    return Linearization(model, away_from_zero(model), x, y, held_out)


def some_kernels(n: int, k: int, m: int = 7, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A kernel with a spectrum like a network's, over four orders of magnitude; that of held-out inputs; a residual."""
    generator = torch.Generator().manual_seed(seed)
    p = 3 * n * k
    scales = torch.logspace(0, -2, p, dtype=torch.float64)
    j, held_out = (torch.randn(size * k, p, generator=generator, dtype=torch.float64) * scales for size in (n, m))
    residual = torch.randn(n, k, generator=generator, dtype=torch.float64)
    return j @ j.T, held_out @ j.T, residual
