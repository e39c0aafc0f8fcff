"""Tangent kernels of networks: products of Jacobians."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import orthogonal, weight_norm
from torch.utils._python_dispatch import TorchDispatchMode

from models.mlp import MLP
from models.tangent.jacobian import Projection, jacobian
from models.tangent.kernel import mean_ntk, ntk, unless_cheap
from tests.models.every_model import EVERY
from tests.sample_info.networks import some_network
from train.randomness import generator


def seeded_projection(size: int, seed: int = 0) -> Projection:
    return Projection(functools.partial(generator, seed, "projection"), size)


@pytest.mark.parametrize("name", EVERY)
def test_the_kernel_of_every_architecture_is_that_of_its_jacobian(name: str) -> None:
    """Products where layers are fully connected, sums over groups of layers elsewhere; and the mean over outputs."""
    net = some_network(name, n=2, m=1)
    kernels = ntk(net.model, net.weights, net.x, net.held_out)
    connected = "mlp" in name or name in ("linear", "quadratic", "cubic")
    assert kernels.how.startswith("product form" if connected else "exact")
    j = jacobian(net.model, net.weights, net.x).flatten(0, 1)
    j_held_out = jacobian(net.model, net.weights, net.held_out).flatten(0, 1)
    torch.testing.assert_close(kernels.train, j @ j.T, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(kernels.held_out, j_held_out @ j.T, rtol=1e-10, atol=1e-10)
    assert torch.equal(kernels.train, kernels.train.T)
    scales = {name: 0.5 + i % 3 if i != 1 else 0.0 for i, name in enumerate(net.weights)}
    s = torch.cat([torch.full((weight.numel(),), scales[name]) for name, weight in net.weights.items()]).double()
    scaled, scaled_held_out = (part.unflatten(0, (-1, 10)) * s for part in (j, j_held_out))
    expected = torch.einsum("icp,jcp->ij", scaled_held_out, scaled) / 10
    result = mean_ntk(net.model, net.weights, net.held_out, net.x, scales)
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-10 * float(expected.abs().max()))


@pytest.mark.parametrize("name", ["mlp-relu", "lenet", "convnextv2"])
@pytest.mark.parametrize("projection", [None, seeded_projection(size=300)], ids=["exact", "coordinates"])
def test_kernels_depend_on_no_batch_or_block_size(name: str, projection: Projection | None) -> None:
    net = some_network(name)
    whole = ntk(net.model, net.weights, net.x, net.held_out, projection)
    memory = 8 * 10 * 10 * (20_000 if name == "convnextv2" else 250)  # of columns: several passes, layers are split
    small = {"batch_size": 4, "memory_bytes": memory}
    parts = ntk(net.model, net.weights, net.x, net.held_out, projection, **small)
    for a, b in ((parts.train, whole.train), (parts.held_out, whole.held_out)):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11 * float(b.abs().max()))
    ones = dict.fromkeys(net.weights, 1.0)
    a = mean_ntk(net.model, net.weights, net.x, net.x, ones, projection, **small)
    b = mean_ntk(net.model, net.weights, net.x, net.x, ones, projection)
    torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11 * float(b.abs().max()))


def test_projected_kernels_are_right_on_average_and_seeded() -> None:
    net = some_network("mlp-relu")
    exact = ntk(net.model, net.weights, net.x, net.held_out).train

    def projected(seed: int, size: int = 200):
        projection = seeded_projection(size=size, seed=seed)
        return ntk(net.model, net.weights, net.x, net.held_out, projection).train

    def error(kernel) -> float:
        return float((kernel - exact).norm() / exact.norm())

    draws = [projected(seed) for seed in range(40)]
    typical = sum(map(error, draws)) / 40
    assert error(torch.stack(draws).mean(0)) < typical / 3  # unbiased: the error of the mean falls like 1/√40
    assert torch.equal(projected(3), draws[3])
    assert not torch.equal(projected(4), draws[3])
    assert error(projected(0, size=1600)) < 0.7 * typical
    torch.testing.assert_close(projected(0, size=10**6), exact)


def test_layers_called_twice_or_on_sequences_have_no_product_form() -> None:
    class Shared(MLP):
        def forward(self, x):
            return super().forward(x) + super().forward(-x)

    net = some_network("mlp-relu")
    model = Shared((1, 8, 8), 10, width=32, depth=1, activation="relu", parametrization="mup")
    kernels = ntk(model, net.weights, net.x, net.held_out)
    assert kernels.how.startswith("exact")
    j = jacobian(model, net.weights, net.x).flatten(0, 1)
    torch.testing.assert_close(kernels.train, j @ j.T)


class Masked(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return F.linear(input, self.weight.tril(), self.bias)


@pytest.mark.parametrize(
    "hidden",
    [
        lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)),
        lambda: Masked(4, 4),
        lambda: weight_norm(nn.Linear(4, 4)),
        lambda: orthogonal(nn.Linear(4, 4)),
        nn.PReLU,
    ],
    ids=[
        "in place",
        "masked",
        "weight norm",
        "orthogonal",
        "PReLU",
    ],
)
def test_kernels_of_layers_that_compute_otherwise_are_those_of_their_jacobians(hidden) -> None:
    """A gradient that is no product of the layer's input and slope was taken for one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), hidden(), nn.Linear(4, 2)).eval()
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    x, held_out = torch.randn(10, 3), torch.randn(6, 3)
    kernels = ntk(model, weights, x, held_out)
    j, j_held_out = (jacobian(model, weights, images).flatten(0, 1) for images in (x, held_out))
    torch.testing.assert_close(kernels.train, j @ j.T, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(kernels.held_out, j_held_out @ j.T, rtol=1e-10, atol=1e-10)
    for i in range(2):  # as many examples as outputs, whose axes torch mixed up
        one = torch.autograd.grad(model(x[i : i + 1])[0, 1], [*model.parameters()])
        expected = torch.cat([gradient.flatten() for gradient in one])
        torch.testing.assert_close(jacobian(model, weights, x[:2])[i, 1].float(), expected)


@pytest.mark.parametrize(
    ("outside", "inside", "mean_of_outputs", "exact"),
    [
        (200_000, 300_000, True, True),  # the mean keeps product form for the connected layer
        (200_001, 1_000, True, False),
        (150_000, 50_000, False, True),
        (150_000, 50_001, False, False),  # kernels of all outputs sample the connected layer with the others
        (0, 300_000, False, True),  # products are exact whatever their size
    ],
)
def test_gradients_are_exact_up_to_so_many_parameters(outside, inside, mean_of_outputs, exact) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.connected = nn.Linear(inside, 1, bias=False)
            self.scales = nn.ParameterList([torch.zeros(outside)] if outside else [])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.connected(x) + sum(scale.sum() for scale in self.scales)

    model, sampled = Scaled(), seeded_projection(300)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    chosen = unless_cheap(sampled, model, weights, torch.zeros(2, inside), mean_of_outputs=mean_of_outputs)
    assert chosen is (None if exact else sampled)


def test_a_kernel_takes_the_memory_it_was_given() -> None:
    """Jacobians are formed for fewer layers, and fewer examples, at a time; the kernel is the same."""
    net = some_network("lenet", n=4, m=3)
    plenty = ntk(net.model, net.weights, net.x, net.held_out)
    parameters = sum(weight.numel() for weight in net.weights.values())
    memory = 8 * 10 * 7 * parameters // 4
    made = []

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            output = func(*args, **(kwargs or {}))
            if isinstance(output, torch.Tensor):
                made.append(output.numel() * output.element_size())
            return output

    with Watched():
        little = ntk(net.model, net.weights, net.x, net.held_out, memory_bytes=memory)
    torch.testing.assert_close(little.train, plenty.train, rtol=1e-12, atol=1e-12)
    assert max(made) <= memory


@pytest.mark.parametrize("name", ["mlp-relu", "lenet"])
def test_a_kernel_of_no_examples_is_empty(name: str) -> None:
    net = some_network(name)
    ones = dict.fromkeys(net.weights, 1.0)
    for x, y in ((net.x[:0], net.x), (net.x, net.x[:0]), (net.x[:0], net.x[:0])):
        assert mean_ntk(net.model, net.weights, x, y, ones).shape == (len(x), len(y))
