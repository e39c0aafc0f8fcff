"""Duties of every architecture, whatever the images: learn from zero logits, alone and under functional_call."""

import copy

import pytest
import torch
from torch.func import functional_call, grad, vmap

from models.classifier import Classifier, count_parameters
from models.polynomial import PolynomialClassifier
from tests.fake_device import DEVICE, Device
from tests.models.every_model import EVERY, Shape

ODD: Shape = (2, 9, 15)


def fresh(name: str, shape: Shape, seed: int = 0) -> Classifier:
    model = EVERY[name](shape)
    model.reset_parameters(torch.Generator().manual_seed(seed))
    return model


def batch(shape: Shape, n: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(9)), torch.arange(n) % 10


def perturb(model: Classifier) -> None:
    """Away from the zeros that models start with, so that every parameter matters."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize(
    ("shape", "precision"),
    [((1, 8, 8), torch.float32), (ODD, torch.float32), ((3, 32, 32), torch.bfloat16)],
    ids=str,
)
@pytest.mark.parametrize("name", EVERY)
def test_gradients_are_finite_and_reach_every_parameter(name: str, shape: Shape, precision: torch.dtype) -> None:
    model, (x, z) = fresh(name, shape), batch(shape)
    perturb(model)
    for layer in model.stochastic_depth():
        layer.factors = torch.tensor([0.0, 1.25, 1.25, 1.25])
    with torch.autocast("cpu", precision, enabled=precision != torch.float32):
        logits = model(x)
    assert logits.shape == (4, 10)
    torch.nn.functional.cross_entropy(logits.float(), z).backward()
    for parameter, gradient in ((n, p.grad) for n, p in model.named_parameters()):
        assert gradient is not None, parameter
        assert gradient.isfinite().all(), parameter


@pytest.mark.parametrize("name", EVERY)
def test_a_fresh_model_predicts_uniformly_and_learns_from_there(name: str) -> None:
    model, (x, z) = fresh(name, (1, 8, 8)), batch((1, 8, 8))
    logits = model(x)
    assert torch.equal(logits, torch.zeros(4, 10))
    torch.nn.functional.cross_entropy(logits, z).backward()
    gradient = model.get_parameter("readout.weight").grad
    assert gradient is not None
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize("name", EVERY)
def test_initial_weights_come_from_the_generator_alone(name: str) -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = fresh(name, (1, 8, 8), seed=3)
    assert torch.equal(torch.get_rng_state(), state)  # nothing was taken from the global generator
    torch.manual_seed(2)
    again, other = fresh(name, (1, 8, 8), seed=3), fresh(name, (1, 8, 8), seed=4)
    perturb(first)
    first.reset_parameters(torch.Generator().manual_seed(3))  # a used model becomes a new one
    for parameter, weight in again.named_parameters():
        assert torch.equal(weight, first.get_parameter(parameter)), parameter
    if name not in ("linear", "quadratic", "cubic"):  # these start at zero
        drawn = [n for n, p in again.named_parameters() if not torch.equal(p, other.get_parameter(n))]
        assert len(drawn) >= 1


@pytest.mark.parametrize("name", EVERY)
def test_it_is_a_function_of_its_parameters(name: str) -> None:
    model, (x, z) = fresh(name, (1, 8, 8)), batch((1, 8, 8))
    perturb(model)
    weights = {n: p.detach() for n, p in model.named_parameters()}
    blank = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in blank.parameters():
            parameter.zero_()
    torch.testing.assert_close(functional_call(blank, weights, (x,)), model(x))

    def loss(weights: dict[str, torch.Tensor], x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(functional_call(blank, weights, (x[None],))[0], z)

    per_example = vmap(grad(loss), (None, 0, 0))(weights, x, z)
    torch.nn.functional.cross_entropy(model(x), z).backward()
    for n, p in model.named_parameters():
        torch.testing.assert_close(per_example[n].mean(0), p.grad, rtol=1e-3, atol=1e-5, msg=n)


def test_a_mask_that_stayed_behind_is_noticed() -> None:
    """The negative control."""

    class Forgetful(PolynomialClassifier):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x * torch.ones(8, 8))

    with Device() as device:
        model, x = Forgetful((1, 8, 8), 10).to(DEVICE), batch((1, 8, 8))[0].to(DEVICE)
        with pytest.raises(RuntimeError, match=r"mul: tensors of shapes \[\[8, 8\]\] are on the CPU"):
            model(x)
        before = device.waits.total()
        assert float(x.sum()) != 0
        assert device.waits.total() == before + 1


def test_parameter_counts_at_the_papers_base_size() -> None:
    assert count_parameters(EVERY["convnextv2"]((3, 32, 32), width=40, depth=2)) == 3_388_810
    assert count_parameters(EVERY["swinv2"]((3, 32, 32), width=40, depth=2)) == 4_854_878
