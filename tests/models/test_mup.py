"""Roles and multipliers follow from shapes, and agree with the mup package where it works: on plain MLPs."""

from typing import Any

import pytest
import torch
from torch import nn

from models.mup import Scaling, depth_factor, scalings, shapes_of
from tests.models.every_model import SCALED

# base, wider and target shape; role, learning rate, initial std, output multiplier
TABLE = {
    "input": ([128, 64], [256, 64], [512, 64], Scaling("input", 1.0, 1.0, 1.0, 1.0)),
    "hidden": ([128, 128], [256, 256], [512, 512], Scaling("hidden", 4.0, 0.25, 0.5, 1.0)),
    "hidden, narrower": ([128, 128], [256, 256], [32, 32], Scaling("hidden", 0.25, 4.0, 2.0, 1.0)),
    "readout": ([10, 128], [10, 256], [10, 512], Scaling("output", 4.0, 1.0, 1.0, 0.25)),
    "bias": ([128], [256], [512], Scaling("vector", 1.0, 1.0, 1.0, 1.0)),
    "readout's bias": ([10], [10], [10], Scaling("vector", 1.0, 1.0, 1.0, 1.0)),
    "convolution": ([16, 6, 5, 5], [32, 12, 5, 5], [64, 18, 5, 5], Scaling("hidden", 3.0, 1 / 3, 3**-0.5, 1.0)),
    "depthwise": ([40, 1, 7, 7], [80, 1, 7, 7], [160, 1, 7, 7], Scaling("input", 1.0, 1.0, 1.0, 1.0)),
    "logit scale": ([2, 1, 1], [4, 1, 1], [8, 1, 1], Scaling("input", 1.0, 1.0, 1.0, 1.0)),
    "fixed": ([512, 2], [512, 2], [512, 2], Scaling("vector", 1.0, 1.0, 1.0, 1.0)),
}


@pytest.mark.parametrize(("base", "wider", "target", "expected"), TABLE.values(), ids=TABLE)
def test_a_shapes_scaling(base: list[int], wider: list[int], target: list[int], expected: Scaling) -> None:
    shapes = [{"w": tuple(shape)} for shape in (base, wider, target)]
    scaled = scalings(*shapes)["w"]
    assert (scaled.role, scaled.width_ratio) == (expected.role, expected.width_ratio)
    assert scaled.learning_rate == pytest.approx(expected.learning_rate)
    assert scaled.initial_std == pytest.approx(expected.initial_std)
    assert scaled.output == pytest.approx(expected.output)


@pytest.mark.parametrize(
    ("base", "wider", "target", "message"),
    [
        ((3, 3, 8), (3, 3, 16), (3, 3, 32), r"b.mix: shape \[3, 3, 8\].* no rule for a dimension after the second"),
        ((8, 8), (16, 16), (32, 32, 1), r"b.mix: shape \[8, 8\].*\[32, 32, 1\] here: .* same number of dimensions"),
        ((8, 5), (16, 5), (32, 6), r"b.mix: shape \[8, 5\].*\[32, 6\] here: a dimension changed that does not"),
    ],
)  # fmt: skip
def test_a_tensor_that_fits_no_role_is_named(base, wider, target, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        scalings({"b.mix": base}, {"b.mix": wider}, {"b.mix": target})


def test_a_tensor_that_comes_with_width_is_named() -> None:
    with pytest.raises(ValueError, match=r"extra\.weight is not in the network at every width"):
        scalings({"w": (8,)}, {"w": (16,)}, {"w": (32,), "extra.weight": (3,)})


def test_building_for_shapes_allocates_nothing_and_draws_nothing() -> None:
    state = torch.get_rng_state()
    assert shapes_of(lambda: nn.Linear(10**6, 10**6))["weight"] == (10**6, 10**6)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("width", [32, 128, 512])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_multipliers_agree_with_the_mup_package_on_plain_mlps(width: int, depth: int) -> None:
    mup = pytest.importorskip("mup")

    def reference(width: int) -> nn.Sequential:
        layers = [nn.Linear(64 if i == 0 else width, width) for i in range(depth)]
        return nn.Sequential(*layers, mup.MuReadout(width, 10))

    theirs = reference(width)
    mup.set_base_shapes(theirs, reference(128), delta=reference(256), rescale_params=False)
    optimizer = mup.MuAdam(theirs.parameters(), lr=1.0)
    their_rate = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    ours = SCALED["mlp-relu"](width=width, depth=depth)
    factor = depth_factor(2, depth, 1.5)
    for (name, rate), parameter in zip(ours.learning_rates().items(), theirs.parameters(), strict=True):
        assert ours.get_parameter(name).shape == parameter.shape
        assert rate == pytest.approx(factor * their_rate[id(parameter)]), name
    assert ours.readout_multiplier == pytest.approx(1 / _width_mult(theirs[-1]))


def _width_mult(readout: Any) -> float:
    return readout.width_mult()
