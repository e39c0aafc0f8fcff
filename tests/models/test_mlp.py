"""MLPs: the scale of their units through depth, parameters, refusals."""

import pytest
import torch

from models.classifier import count_parameters
from models.mlp import MLP, Activation

SHAPE = (1, 8, 8)
ACTIVATIONS: tuple[Activation, ...] = ("relu", "gelu", "swiglu")


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
    assert (
        count_parameters(MLP(SHAPE, 10, width=128, depth=2, activation="relu", parametrization="mup"))
        == 64 * 128 + 128 + 128 * 129 + 1290
    )
    gated = MLP(SHAPE, 10, width=128, depth=2, activation="swiglu", parametrization="mup")
    assert count_parameters(gated) == 64 * 256 + 256 + 128 * 256 + 256 + 1290


@pytest.mark.parametrize("size", [{"width": 0, "depth": 2}, {"width": 8, "depth": 0}])
def test_an_empty_network_is_refused(size: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"model\.(width|depth)=0: an MLP needs at least 1"):
        MLP(SHAPE, 10, activation="relu", parametrization="mup", **size)
