"""Stochastic depth: off without factors, and rates of every block."""

import pytest
import torch

from models.stochastic_depth import StochasticDepth
from tests.models.every_model import EVERY, SCALED

DEEP = ("convnextv2", "swinv2")


def perturbed(name: str):
    model = SCALED[name]()
    model.reset_parameters(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    return model, torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("name", DEEP)
def test_stochastic_depth_is_off_until_it_is_given_factors(name: str) -> None:
    model, x = perturbed(name)
    model.train()  # the module's own mode means nothing here
    evaluated = model(x)
    state = torch.get_rng_state()
    layers = model.stochastic_depth()
    for layer in layers:
        layer.factors = torch.ones(16)
    assert torch.equal(model(x), evaluated)
    layers[-1].factors = torch.zeros(16).index_fill(0, torch.arange(8), 1 / (1 - layers[-1].rate))
    dropped = model(x)
    assert not torch.equal(dropped[8:], evaluated[8:])
    for layer in layers:
        layer.factors = None
    assert torch.equal(model(x), evaluated)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_dropped_branch_is_zero_and_a_kept_one_rescaled() -> None:
    layer, branch = StochasticDepth(0.2), torch.ones(3, 2, 4, dtype=torch.bfloat16)
    layer.factors = torch.tensor([0.0, 1.25, 0.0])
    assert layer(branch).dtype == torch.bfloat16
    assert layer(branch)[:, 0, 0].tolist() == [0.0, 1.25, 0.0]


@pytest.mark.parametrize("name", DEEP)
def test_rates_rise_linearly_to_the_last_block(name: str) -> None:
    model = EVERY[name]((3, 32, 32), depth=2)
    rates = [module.rate for module in model.modules() if isinstance(module, StochasticDepth)]
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx({"convnextv2": 0.1, "swinv2": 0.2}[name])
