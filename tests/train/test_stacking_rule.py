"""The choice between one network and one after another: a fixed rule, which can be overruled."""

import dataclasses

import pytest
import torch

from erasure.dataset import LabelledImages
from models.lenet import LeNet
from models.mlp import MLP
from models.polynomial import PolynomialClassifier
from models.resnet import ResNet
from train import stacking_rule
from train.device_images import DeviceImages
from train.ensemble import Ensemble
from train.settings import TrainSettings


class Unstackable(PolynomialClassifier):
    stackable = False


class ReadsWeights(Unstackable):
    """A network that no vmap carries: its program depends on the values of its weights."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (1 if float(self.readout.weight.sum()) < 1e9 else 2)


@pytest.fixture
def train() -> DeviceImages:
    part = LabelledImages(torch.rand(40, 1, 4, 4), torch.arange(40) % 3)
    return DeviceImages(part, torch.zeros(1), torch.ones(1), padding=0, flip=False, device=torch.device("cpu"))


def ensemble(kind: type[PolynomialClassifier] = PolynomialClassifier) -> Ensemble:
    return Ensemble(kind((1, 4, 4), 3))


@pytest.mark.parametrize("side", [8, 16, 32])
def test_products_are_those_that_pytorch_counts(side: int) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    shape = (3, side, side)
    networks = [
        MLP(shape, 10, width=48, depth=3, activation="relu", parametrization="mup"),
        LeNet(shape, 10, width=64, depth=2, parametrization="mup"),
        ResNet(shape, 10, width=8, depth=1, parametrization="mup"),
    ]
    for network in networks:
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network(torch.zeros(1, *shape))
        counted = stacking_rule.multiply_adds(network, shape)
        assert counted == pytest.approx(counter.get_total_flops() / 2, rel=0.02)  # biases aside


def test_small_networks_are_stacked_on_a_cpu_and_all_on_a_gpu(train, settings: TrainSettings, monkeypatch) -> None:
    auto = dataclasses.replace(settings, stack="auto")
    assert stacking_rule.choose(ensemble(), 4, train, auto).stack == 4
    monkeypatch.setattr(stacking_rule, "LARGEST_STACKED", 50)
    chosen = stacking_rule.choose(ensemble(), 4, train, auto)
    assert (chosen.stack, chosen.why) == (1, "an example takes 51 multiply-adds, more than 50")
    train.labels = train.labels.to("meta")
    assert stacking_rule.choose(ensemble(), 4, train, auto).stack == 4


def test_the_option_overrules_it(train, settings: TrainSettings) -> None:
    for option, stack in (("all", 3), ("one", 1)):
        chosen = stacking_rule.choose(ensemble(), 3, train, dataclasses.replace(settings, stack=option))
        assert chosen.stack == stack


def test_a_network_without_stacked_layers_is_stacked_where_that_is_asked_for(train, settings: TrainSettings) -> None:
    auto = stacking_rule.choose(ensemble(Unstackable), 3, train, dataclasses.replace(settings, stack="auto"))
    assert (auto.stack, auto.why) == (1, "Unstackable has no stacked layers; train.stack=all uses vmap")
    assert stacking_rule.choose(ensemble(Unstackable), 3, train, settings).stack == 3


def test_a_network_that_vmap_cannot_run_is_refused_in_one_line(train, settings: TrainSettings) -> None:
    for members, stack in ((1, "all"), (3, "auto"), (3, "one")):
        chosen = dataclasses.replace(settings, stack=stack)
        assert stacking_rule.choose(ensemble(ReadsWeights), members, train, chosen).stack == 1
    refusal = r"train.stack=all: ReadsWeights cannot be stacked by torch.func.vmap \(.+\): choose auto or one$"
    with pytest.raises(ValueError, match=refusal) as refused:
        stacking_rule.choose(ensemble(ReadsWeights), 3, train, settings)
    assert "\n" not in str(refused.value)
