"""The network of the researcher's loop computes what ours does."""

import pytest
import torch

from models.classifier import Classifier
from scripts.benchmarks.plain_training import of_torch_layers
from tests.models.every_model import EVERY, SMALL
from tests.sample_info.networks import away_from_zero


@pytest.mark.parametrize("name", ["mlp-relu", "lenet", "cnn"])
def test_networks_of_torchs_own_layers_are_the_same(name: str) -> None:
    model: Classifier = EVERY[name]()
    model.load_state_dict(away_from_zero(model))
    network, x = of_torch_layers(model), torch.randn(5, *SMALL, generator=torch.Generator().manual_seed(0))
    assert not {type(layer).__module__ for layer in network.modules()} & {"models.stackable_layers"}
    with torch.no_grad():
        torch.testing.assert_close(network(x), model(x))
        next(network.parameters()).mul_(2)  # has weights of its own
        assert not torch.allclose(network(x), model(x))
