"""Jacobians of networks against autograd."""

import pytest
import torch
from torch.func import functional_call

from models.tangent.jacobian import in_double, jacobian, network_outputs
from tests.sample_info.networks import some_network


@pytest.mark.parametrize("name", ["mlp-relu", "lenet"])
def test_the_jacobian_is_autograds(name: str) -> None:
    net = some_network(name, n=3)
    j = jacobian(net.model, net.weights, net.x, batch_size=2)
    leaves = {name: weight.double().requires_grad_() for name, weight in net.weights.items()}
    outputs = functional_call(net.model, leaves, (net.x.double(),))
    torch.testing.assert_close(network_outputs(net.model, net.weights, net.x, batch_size=2), outputs.detach())
    for i, c in ((0, 0), (2, 7)):
        gradients = torch.autograd.grad(outputs[i, c], [*leaves.values()], retain_graph=True)
        torch.testing.assert_close(j[i, c], torch.cat([g.flatten() for g in gradients]))


def test_weights_of_another_network_are_refused() -> None:
    net = some_network("linear")
    with pytest.raises(ValueError, match="readout.bias"):
        jacobian(net.model, {"readout.weight": net.weights["readout.weight"]}, net.x)


def test_values_in_double_are_copies() -> None:
    """Computing with them must not train the network, whatever precision it has."""
    net = some_network("mlp-relu", n=3)
    for dtype in (torch.float32, torch.float64):
        weights = {name: weight.detach().to(dtype) for name, weight in net.weights.items()}
        copies = in_double(net.model, weights)
        for name, weight in weights.items():
            assert copies[name].dtype == torch.float64
            assert torch.equal(copies[name], weight.double())
            assert copies[name].data_ptr() != weight.data_ptr()
