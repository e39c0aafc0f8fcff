"""ConvNeXt V2 and Swin V2: sizes, stochastic depth, what they refuse and what they warn of."""

import logging

import pytest
import torch

from models.convnextv2 import ConvNeXtV2
from models.stochastic_depth import StochasticDepth
from models.swinv2 import SwinV2
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


@pytest.mark.parametrize(
    ("name", "shape", "stages"), [("convnextv2", (1, 8, 8), "4"), ("swinv2", (1, 8, 8), "3 and 4")]
)
def test_collapsed_stages_are_warned_of(name: str, shape, stages: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        EVERY[name]((3, 32, 32))
        assert not caplog.records
        EVERY[name](shape)
    (record,) = caplog.records
    assert f"on images of 8×8: stage {stages} of 4 works on 1×1 points" in record.getMessage()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: EVERY["convnextv2"](width=0), r"model\.width=0: ConvNeXt V2 needs at least 1"),
        (lambda: EVERY["convnextv2"](depth=0), r"model\.depth=0: ConvNeXt V2 needs at least 1"),
        (lambda: EVERY["swinv2"](width=50), r"model\.width=50: Swin V2 needs a multiple of 20, the size of its heads"),
        (lambda: EVERY["swinv2"]((1, 7, 8)), r"images of 7×8: Swin V2 needs sides of at least 8"),
        (
            lambda: ConvNeXtV2((1, 8, 8), 10, width=8, depth=1, drop_path=1.0, parametrization="mup"),
            r"model\.drop_path=1\.0: must lie in \[0, 1\)",
        ),
    ],
)
def test_what_cannot_be_built_is_refused(build, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_heads_grow_with_width_and_blocks_with_depth() -> None:
    model = SwinV2((3, 32, 32), 10, width=60, depth=3, drop_path=0.2, parametrization="mup")
    for stage, blocks in enumerate((3, 3, 9, 3)):
        for block in range(blocks):
            scale = model.get_parameter(f"network.layers.{stage}.blocks.{block}.attn.logit_scale")
            assert len(scale) == 3 * 2**stage
