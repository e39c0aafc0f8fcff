"""MLP and linear classifier: what they compute, alone and stacked."""

import math

import pytest
import torch
from torch.func import functional_call

from models.classifier import Classifier, count_parameters
from models.mlp import MLP, Activation
from models.polynomial import PolynomialClassifier

SHAPE = (1, 8, 8)
ACTIVATIONS: tuple[Activation, ...] = ("relu", "gelu", "swiglu")


def every_model() -> list[Classifier]:
    return [
        PolynomialClassifier(SHAPE, 10),
        *(MLP(SHAPE, 10, width=16, depth=3, activation=a, parametrization="mup") for a in ACTIVATIONS),
    ]


@pytest.mark.parametrize("model", every_model(), ids=["linear", *ACTIVATIONS])
def test_a_fresh_model_predicts_uniformly_and_learns_from_there(model: Classifier) -> None:
    model.reset_parameters(torch.Generator().manual_seed(0))
    logits = model(torch.randn(5, *SHAPE))
    assert logits.shape == (5, 10)
    assert torch.equal(logits, torch.zeros(5, 10))
    torch.nn.functional.cross_entropy(logits, torch.arange(5)).backward()
    readout = model.get_parameter("readout.weight")
    assert readout.grad is not None
    assert readout.grad.abs().sum() > 0


@pytest.mark.parametrize("model", every_model(), ids=["linear", *ACTIVATIONS])
def test_stacked_members_compute_what_each_computes_alone(model: Classifier) -> None:
    generator = torch.Generator().manual_seed(1)
    members = [
        {name: torch.randn(p.shape, generator=generator) * 0.2 for name, p in model.named_parameters()}
        for _ in range(3)
    ]
    stacked = {name: torch.stack([member[name] for member in members]) for name in members[0]}
    own, shared = torch.randn(3, 7, *SHAPE, generator=generator), torch.randn(7, *SHAPE, generator=generator)
    with_own = functional_call(model, stacked, (own,))
    with_shared = functional_call(model, stacked, (shared,))
    for s, member in enumerate(members):
        torch.testing.assert_close(with_own[s], functional_call(model, member, (own[s],)), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(with_shared[s], functional_call(model, member, (shared,)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_hidden_units_keep_their_scale_through_depth(activation: Activation) -> None:
    model = MLP((1, 20, 20), 10, width=1024, depth=12, activation=activation, parametrization="mup")
    model.reset_parameters(torch.Generator().manual_seed(0))
    scales = []
    for layer in model.hidden:
        layer.register_forward_hook(lambda _, __, u: scales.append(model._activate(u).square().mean().item()))
    model(torch.randn(64, 1, 20, 20, generator=torch.Generator().manual_seed(1)))
    assert all(0.7 < scale < 1.4 for scale in scales), scales


def test_parameter_counts() -> None:
    assert count_parameters(PolynomialClassifier(SHAPE, 10)) == 650
    assert (
        count_parameters(MLP(SHAPE, 10, width=128, depth=2, activation="relu", parametrization="mup"))
        == 64 * 128 + 128 + 128 * 129 + 1290
    )
    gated = MLP(SHAPE, 10, width=128, depth=2, activation="swiglu", parametrization="mup")
    assert count_parameters(gated) == 64 * 256 + 256 + 128 * 256 + 256 + 1290


def test_initialisation_follows_its_generator() -> None:
    def first_weights(seed: int) -> torch.Tensor:
        model = MLP(SHAPE, 10, width=4, depth=1, activation="relu", parametrization="mup")
        torch.manual_seed(math.floor(1e6 * torch.rand(1).item()))  # whatever the global generator does
        model.reset_parameters(torch.Generator().manual_seed(seed))
        return model.get_parameter("hidden.0.weight").detach().clone()

    assert torch.equal(first_weights(0), first_weights(0))
    assert not torch.equal(first_weights(0), first_weights(1))


@pytest.mark.parametrize("size", [{"width": 0, "depth": 2}, {"width": 8, "depth": 0}])
def test_an_empty_network_is_refused(size: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"model\.(width|depth)=0: an MLP needs at least 1"):
        MLP(SHAPE, 10, activation="relu", parametrization="mup", **size)
