"""The network of the researcher's loop computes what ours does."""

import pytest
import torch

from models.lenet import LeNet
from models.mlp import MLP
from scripts.benchmarks.plain_training import textbook
from train.randomness import generator

SHAPE = (3, 8, 8)


@pytest.mark.parametrize(
    "model",
    [
        MLP(SHAPE, 10, width=64, depth=2, activation="relu", parametrization="standard"),
        LeNet(SHAPE, 10, width=64, depth=2, parametrization="standard"),
    ],
)
def test_the_textbook_network_is_ours(model: MLP | LeNet) -> None:
    model.reset_parameters(generator(0, "init"))
    x = torch.randn(5, *SHAPE, generator=generator(0, "x"))
    with torch.no_grad():
        model.readout.weight.normal_(generator=generator(0, "readout"))
        network = textbook(model)
        assert type(network) is torch.nn.Sequential
        torch.testing.assert_close(network(x), model(x))
        next(network.parameters()).mul_(2)  # has weights of its own
        assert not torch.allclose(network(x), model(x))
