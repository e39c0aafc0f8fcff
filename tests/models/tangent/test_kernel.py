"""Empirical tangent kernels: products of Jacobians, and their limit of infinite width."""

import copy
import functools

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev
from torch.utils._python_dispatch import TorchDispatchMode

from models.kernel import Kernel
from models.mlp import MLP
from models.mup import Parametrization
from models.polynomial import PolynomialClassifier
from models.tangent import kernel
from models.tangent.jacobian import jacobian
from models.tangent.kernel import EmpiricalNtk, TangentKernel, TangentOptions, exact_or, mean_ntk, ntk
from models.tangent.projection import EXACT, Projection
from tests.models.every_model import EVERY, SMALL
from tests.sample_info.networks import some_network
from train.randomness import generator


def images(n: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(n, *SMALL, generator=torch.Generator().manual_seed(seed))


def drawn(model, seed: int = 0) -> TangentKernel:
    return EmpiricalNtk(SMALL, 10, network=model).drawn(torch.Generator().manual_seed(seed), images(300))


def mlp(width: int, depth: int = 2, parametrization: Parametrization = "mup") -> MLP:
    return MLP(SMALL, 10, width=width, depth=depth, activation="relu", parametrization=parametrization)


@pytest.mark.parametrize("name", ["mlp-relu", "lenet", "swinv2", "quadratic"])
def test_it_sums_gradients_times_the_size_of_what_they_are_of(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_FEW_PARAMETERS", 10**9)
    monkeypatch.setattr(kernel, "_AVERAGED", 7)
    tangent, x, y = drawn(EVERY[name]()), images(3), images(2, seed=1)
    weights = {key: weight.double() for key, weight in tangent.weights.items()}
    network = copy.deepcopy(tangent.network).double()

    def gradients(inputs: Tensor) -> dict[str, Tensor]:
        return jacrev(lambda w: functional_call(network, w, (inputs.double(),)))(weights)

    left, right = gradients(x), gradients(y)
    sizes = {key: weight.square().mean() for key, weight in weights.items() if weight.any()}
    assert any("readout" in key for key in sizes)
    shares = [size * torch.einsum("icp,jcp->ij", left[k].flatten(2), right[k].flatten(2)) for k, size in sizes.items()]
    expected = sum(shares, torch.zeros(3, 2)) / 10 / tangent.size
    torch.testing.assert_close(tangent(x, y), expected, rtol=1e-10, atol=1e-10 * float(expected.abs().max()))
    torch.testing.assert_close(tangent.diagonal(x), tangent(x, x).diagonal(), rtol=1e-12, atol=0)
    assert float(tangent.diagonal(images(300)[::43]).mean()) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("depth", [1, 2])
def test_that_of_a_relu_mlp_tends_to_the_one_of_infinite_width(depth: int) -> None:
    x = images(6)
    limit = Kernel(SMALL, 10, kernel="ntk", depth=depth, bandwidth=0.5)(x, x)

    def miss(width: int) -> float:
        """Mean over four draws of what is missed of the limit."""
        return sum(float((drawn(mlp(width, depth), s)(x, x) - limit).norm() / limit.norm()) for s in range(4)) / 4

    narrow, wide = miss(64), miss(1024)  # like 1/√width: a quarter
    assert 0.15 < narrow < 0.5
    assert wide < min(0.4 * narrow, 0.1)


def test_the_parametrisation_of_the_network_makes_no_difference() -> None:
    x = images()
    kernels = [drawn(mlp(256, parametrization=kind)) for kind in ("mup", "standard")]
    mup, standard = (tangent(x, x) for tangent in kernels)
    torch.testing.assert_close(mup, standard, rtol=1e-5, atol=0)
    assert kernels[0].size == pytest.approx(kernels[1].size, rel=1e-5)  # also before it is divided by its size
    assert float((mup - drawn(mlp(256), seed=1)(x, x)).abs().max()) > 1e-3  # other weights do


def test_random_coordinates_of_large_networks_are_the_same_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = images(3), images(2, seed=1)
    exact = drawn(EVERY["cnn"]())(x, x)
    monkeypatch.setattr(kernel, "_FEW_PARAMETERS", 100)
    monkeypatch.setattr(kernel, "_COORDINATES", 60)
    tangent = drawn(EVERY["cnn"]())
    assert tangent.projection.draws is not None
    assert len({tangent.projection.draws(name).initial_seed() for name in tangent.weights}) == len(tangent.weights)
    both = torch.cat([x, y])
    torch.testing.assert_close(tangent(both, both)[3:, :3], tangent(y, x), rtol=1e-10, atol=1e-12)
    assert float((tangent(x, x) - exact).abs().max()) > 1e-6
    assert float((tangent(x, x) - exact).norm() / exact.norm()) < 0.5


def test_what_has_no_gradient_of_one_example_is_refused() -> None:
    with pytest.raises(ValueError, match=r"model\.network=TimmByName.*batch_norm=frozen"):
        drawn(EVERY["timm"](batch_norm="batch"))
    without = PolynomialClassifier(SMALL, 10, degree=2, sketch=8)
    without.readout = torch.nn.Identity()  # type: ignore[assignment]
    with pytest.raises(ValueError, match="no linear readout"):
        drawn(without)
    with pytest.raises(ValueError, match="has no weights"):
        drawn(Kernel(SMALL, 10, kernel="ntk", depth=2, bandwidth=0.5))


def seeded_projection(kind, size: int, seed: int = 0) -> Projection:
    return Projection(kind, size, functools.partial(generator, seed, "projection", kind))


@pytest.mark.parametrize("name", EVERY)
def test_the_kernel_of_every_architecture_is_that_of_its_jacobian(name: str) -> None:
    """Products where layers are fully connected, sums over groups of layers elsewhere; and the mean over outputs."""
    net = some_network(name, n=3, m=2)
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
@pytest.mark.parametrize("kind", ["exact", "coordinates", "random"])
def test_kernels_depend_on_no_batch_or_block_size(name: str, kind) -> None:
    net, projection = some_network(name), seeded_projection(kind, size=300)
    whole = ntk(net.model, net.weights, net.x, net.held_out, TangentOptions(projection=projection))
    memory = 8 * 10 * 10 * (20_000 if name == "convnextv2" else 250)  # of columns: several passes, layers are split
    small = TangentOptions(projection=projection, batch_size=4, memory_bytes=memory)
    parts = ntk(net.model, net.weights, net.x, net.held_out, small)
    for a, b in ((parts.train, whole.train), (parts.held_out, whole.held_out)):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11 * float(b.abs().max()))
    ones = dict.fromkeys(net.weights, 1.0)
    a = mean_ntk(net.model, net.weights, net.x, net.x, ones, small)
    b = mean_ntk(net.model, net.weights, net.x, net.x, ones, TangentOptions(projection=projection))
    torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11 * float(b.abs().max()))


@pytest.mark.parametrize("kind", ["coordinates", "random"])
def test_projected_kernels_are_right_on_average_and_seeded(kind) -> None:
    net = some_network("mlp-relu")
    exact = ntk(net.model, net.weights, net.x, net.held_out).train

    def projected(seed: int, size: int = 200):
        projection = seeded_projection(kind, size=size, seed=seed)
        return ntk(net.model, net.weights, net.x, net.held_out, TangentOptions(projection=projection)).train

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

    model, sampled = Scaled(), seeded_projection("coordinates", 300)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    chosen = exact_or(sampled, model, weights, torch.zeros(2, inside), mean_of_outputs=mean_of_outputs)
    assert chosen is (EXACT if exact else sampled)


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
        little = ntk(net.model, net.weights, net.x, net.held_out, TangentOptions(memory_bytes=memory))
    torch.testing.assert_close(little.train, plenty.train, rtol=1e-12, atol=1e-12)
    assert max(made) <= memory
