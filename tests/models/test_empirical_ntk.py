"""Empirical tangent kernels: gradients on a common scale, and their limit of infinite width."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, jacrev

from models.empirical_ntk import EmpiricalNtk, TangentKernel
from models.kernel import Kernel
from models.mlp import MLP
from models.mup import Parametrization
from models.polynomial import PolynomialClassifier
from tests.models.every_model import EVERY, SMALL


def images(n: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(n, *SMALL, generator=torch.Generator().manual_seed(seed))


def drawn(model, seed: int = 0, count: int = 60) -> TangentKernel:
    return EmpiricalNtk(SMALL, 10, network=model).drawn(torch.Generator().manual_seed(seed), images(count))


def exact(tangent: TangentKernel) -> TangentKernel:
    """The kernel of whole gradients."""
    return replace(tangent, projection=None)


def mlp(width: int, depth: int = 2, parametrization: Parametrization = "mup") -> MLP:
    return MLP(SMALL, 10, width=width, depth=depth, activation="relu", parametrization=parametrization)


@pytest.mark.parametrize("name", ["mlp-relu", "lenet", "swinv2", "quadratic"])
def test_it_sums_gradients_times_the_size_of_what_they_are_of(name: str) -> None:
    tangent, x, y = exact(drawn(EVERY[name](), count=3)), images(3), images(2, seed=1)
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


@pytest.mark.parametrize("name", ["mlp-relu", "lenet"])
def test_images_are_alike_to_themselves_by_one_on_average(name: str) -> None:
    assert float(drawn(EVERY[name]()).diagonal(images(60)).mean()) == pytest.approx(1, rel=1e-9)


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


def test_random_coordinates_of_large_networks_are_the_same_at_every_call() -> None:
    x, y = images(3), images(2, seed=1)
    tangent = drawn(EVERY["cnn"](width=40), count=3)
    whole = exact(tangent)(x, x)
    assert tangent.projection is not None
    assert len({tangent.projection.draws(name).initial_seed() for name in tangent.weights}) == len(tangent.weights)
    both = torch.cat([x, y])
    torch.testing.assert_close(tangent(both, both)[3:, :3], tangent(y, x), rtol=1e-10, atol=1e-12)
    assert float((tangent(x, x) - whole).abs().max()) > 1e-6
    assert float((tangent(x, x) - whole).norm() / whole.norm()) < 0.5


def test_what_has_no_gradient_of_one_example_is_refused() -> None:
    without = PolynomialClassifier(SMALL, 10, degree=2, sketch=8)
    without.readout = torch.nn.Identity()  # type: ignore[assignment]
    with pytest.raises(ValueError, match="no linear readout"):
        drawn(without)
    with pytest.raises(ValueError, match="has no weights"):
        drawn(Kernel(SMALL, 10, kernel="ntk", depth=2, bandwidth=0.5))
