"""Learning rates and initial weights of every architecture at several widths and depths."""

import functools

import pytest
import torch

from models.mup_classifier import MupClassifier
from tests.models.every_model import SCALED


@pytest.mark.parametrize("name", SCALED)
def test_nothing_is_scaled_at_the_base_size(name: str) -> None:
    for parametrization in ("mup", "standard"):
        model = _at(name, 1, depth=_base(name).base_depth, parametrization=parametrization)
        assert set(model.learning_rates().values()) == {1.0}
        assert model.readout_multiplier == 1.0
        assert {scaled.initial_std for scaled in model.scalings.values()} == {1.0}


@pytest.mark.parametrize("name", SCALED)
def test_hidden_matrices_slow_down_with_width(name: str) -> None:
    model = _at(name, 4, depth=_base(name).base_depth)
    roles = {scaled.role for scaled in model.scalings.values()}
    assert roles == {"input", "hidden", "output", "vector"}
    for parameter, scaled in model.scalings.items():
        factor = model.learning_rates()[parameter]
        assert factor == pytest.approx(1 / scaled.width_ratio if scaled.role == "hidden" else 1.0)
        assert (scaled.role == "output") == (parameter == "readout.weight")
    assert model.readout_multiplier == pytest.approx(0.25, rel=0.5 if name == "lenet" else 1e-9)
    standard = _at(name, 4, depth=_base(name).base_depth, parametrization="standard")
    assert set(standard.learning_rates().values()) == {1.0}
    assert standard.readout_multiplier == 1.0


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("parametrization", ["mup", "standard"])
def test_depth_slows_everything_down(name: str, parametrization: str) -> None:
    shallow, deep = (_at(name, 2, depth=depth, parametrization=parametrization) for depth in (1, 3))
    exponent = 1.5 if name.startswith("mlp") else 0.5
    for model, depth in ((shallow, 1), (deep, 3)):
        factor = model.learning_rates()["readout.weight"]
        assert factor == pytest.approx((model.base_depth / depth) ** exponent)


@pytest.mark.parametrize("name", SCALED)
def test_hidden_weights_start_with_a_standard_deviation_of_one_over_root_fan_in(name: str) -> None:
    def scaled_std(model: MupClassifier) -> dict[str, float]:
        model.reset_parameters(torch.Generator().manual_seed(0))
        return {
            parameter: weight.std().item() * weight[0].numel() ** 0.5
            for parameter, weight in model.named_parameters()
            if model.scalings[parameter].role == "hidden"
        }

    narrow, wide = (scaled_std(_at(name, ratio, depth=1, device="cpu")) for ratio in (1, 3))
    for parameter, std in narrow.items():
        assert wide[parameter] == pytest.approx(std, rel=0.1), parameter


@functools.cache
def _base(name: str) -> MupClassifier:
    """Return a model of the architecture, for its base width and depth."""
    with torch.device("meta"):
        return SCALED[name]()


def _at(name: str, ratio: int, *, depth: int, parametrization: str = "mup", device: str = "meta") -> MupClassifier:
    """The model at a multiple of its base width; without memory for its weights, unless they are drawn."""
    base = _base(name).base_width
    with torch.device(device):
        return SCALED[name](width=ratio * base, depth=depth, parametrization=parametrization)
