"""Scores are computed on the network's device: nothing of what they need is left behind on the CPU."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from models.tangent.kernel import Kernels, ntk
from sample_info.gradient_descent import GradientDescent
from sample_info.linearized.descent import LinearizedDescent
from sample_info.linearized.dynamics import LinearizedDynamics, leave_one_out
from sample_info.linearized.sgd_steady_state import sgd_information
from sample_info.references import influence
from tests.fake_device import DEVICE, Device
from tests.models.every_model import EVERY, SMALL

MODELS = {"products of layers": "mlp-relu", "Jacobians": "lenet"}
CPU = torch.device("cpu")


def kernels(name: str, device: torch.device) -> Kernels:
    model = EVERY[MODELS[name]](SMALL)
    model.reset_parameters(torch.Generator().manual_seed(0))
    x = torch.randn(6, *SMALL, generator=torch.Generator().manual_seed(1))
    model = model.to(device).eval()
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    return ntk(model, weights, x[:4].to(device), x[4:].to(device))


@pytest.mark.parametrize("name", MODELS)
def test_kernels(name: str) -> None:
    expected = kernels(name, CPU)
    with Device():
        result = kernels(name, DEVICE)
        torch.testing.assert_close(result.train.cpu(), expected.train)
        torch.testing.assert_close(result.held_out.cpu(), expected.held_out)


def scores(device: torch.device) -> Mapping[str, Tensor]:
    """Compute all methods by a kernel that was computed before."""
    whole = KERNELS.train.to(device), KERNELS.held_out.to(device)
    residual = torch.linspace(-1, 1, 40, dtype=torch.float64).view(4, 10).to(device)
    by_method = {}
    for method in ("series", "resolvent"):
        descent = LinearizedDescent(learning_rate=1e-3, steps=100, weight_decay=0.5)
        dynamics = LinearizedDynamics(whole[0], residual, descent, method=method)
        by_method[method] = leave_one_out(dynamics, whole[1]).weight
    minimum = dynamics.at_minimum
    by_method["elimination"] = leave_one_out(minimum, whole[1]).prediction
    by_method["steady state"] = sgd_information(minimum, 2)[0]
    by_method["influence"] = influence(Kernels(*whole, ""), residual, 0.5).weight
    return {name: score.cpu() for name, score in by_method.items()}


def test_scores_by_every_method() -> None:
    expected = scores(CPU)
    with Device():
        torch.testing.assert_close(scores(DEVICE), expected)


def test_retraining() -> None:
    model = EVERY["mlp-relu"](SMALL)
    model.reset_parameters(torch.Generator().manual_seed(0))
    x, y = torch.randn(4, *SMALL, generator=torch.Generator().manual_seed(1)), torch.linspace(-1, 1, 40).view(4, 10)

    def change(device: torch.device) -> Mapping[str, Tensor]:
        weights = {name: parameter.detach().to(device) for name, parameter in model.named_parameters()}
        descent = GradientDescent.of(model, weights, x.to(device), y.to(device), steps=3, learning_rate=0.01)
        moved = descent.train(torch.tensor([[1, 2, 3], [0, 2, 3], [0, 1, 3]]))
        return {name: part.cpu() for name, part in moved.items()}

    expected = change(CPU)
    with Device():
        torch.testing.assert_close(change(DEVICE), expected)


KERNELS = kernels("products of layers", CPU)
