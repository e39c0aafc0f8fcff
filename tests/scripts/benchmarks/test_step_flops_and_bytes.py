"""Costs of an optimiser step, against formulas written by hand."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from models.classifier import Classifier
from models.mlp import MLP
from scripts.benchmarks.step_flops_and_bytes import Device, Step

SHAPE = (3, 32, 32)


class Depthwise(Classifier):
    """Pixels, one number more per channel, and the mean of each: 3 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(c, 12, 3, padding=1, groups=g) for c, g in ((3, 1), (12, 12)))

    def reset_parameters(self, generator: torch.Generator) -> None: ...

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)).mean((-1, -2))


def test_an_mlps_flops_numbers_and_bytes() -> None:
    step = Step.of(MLP(SHAPE, 10, width=128, depth=2, activation="relu", parametrization="mup"), SHAPE)
    first, rest = 2 * 3072 * 128, 2 * (128 * 128 + 128 * 10)
    assert step.parameters == 3073 * 128 + 129 * 128 + 129 * 10
    assert step.forward_flops == first + rest
    assert step.flops == 2 * first + 3 * rest  # images have no gradient
    assert step.activations == 3072 + 3 * 128  # the image, two layers, and the second times the readout's multiplier
    assert step.moved_bytes(64, 2) == 36 * step.parameters + 64 * 2 * 2 * step.activations


def test_depthwise_convolutions_are_counted_by_group() -> None:
    model = Depthwise()
    step = Step.of(model, SHAPE)
    first, second = 2 * 1024 * 27 * 12, 2 * 1024 * 9 * 12
    assert step.forward_flops == first + second
    assert step.flops == 2 * first + 3 * second
    with FlopCounterMode(display=False) as theirs:  # the reason for a formula of our own
        model(torch.zeros(1, *SHAPE)).sum().backward()
    assert theirs.get_total_flops() == step.flops + 11 * second


def test_a_floor_is_the_larger_of_flops_and_bytes() -> None:
    step = Step(parameters=1000, forward_flops=1e9, flops=3e9, activations=100)
    floor = step.floor(10, Device(1e9, 1e15, 4), steps=5)
    assert (floor.seconds, str(floor).split(": ")[1]) == (pytest.approx(150), "bound by products")
    floor = step.floor(10, Device(1e15, 1e3, 4))
    assert (floor.seconds, str(floor).split(": ")[1]) == (pytest.approx(36 + 2 * 4), "bound by memory")
    half = step.floor(10, Device(1e15, 1e3, 2))  # bfloat16 activations
    assert half.seconds == pytest.approx(36 + 2 * 2)
