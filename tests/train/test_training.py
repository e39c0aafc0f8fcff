"""State that a training keeps of its past: all random draws, stochastic depth's included."""

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from erasure.source import LabelledImages
from models.classifier import Classifier
from models.layers import Linear
from models.polynomial import PolynomialClassifier
from models.stochastic_depth import StochasticDepth
from tests.fake_device import DEVICE, Device
from tests.models.every_model import EVERY
from train.checkpoint import Checkpoints
from train.data import DeviceImages
from train.ensemble import Ensemble
from train.settings import TrainSettings
from train.training import Fit, Training, TrainingSets, fit

CPU = torch.device("cpu")


class Interrupted(BaseException):
    """Stands for the end of the process."""


class Dropping(Classifier):
    """A linear model and a branch that is dropped for half of the examples."""

    def __init__(self) -> None:
        super().__init__()
        self.straight, self.branch, self.drop = Linear(16, 2), Linear(16, 2), StochasticDepth(0.5)

    def reset_parameters(self, generator: torch.Generator) -> None:
        self.straight.reset_parameters(generator, gain=1.0)
        self.branch.reset_parameters(generator, gain=1.0)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.straight(x) + self.drop(self.branch(x))


def images(seed: int, device: torch.device = CPU) -> DeviceImages:
    drawn, labels = torch.randn(60, 1, 4, 4, generator=torch.Generator().manual_seed(seed)), torch.arange(60) % 2
    part = LabelledImages(drawn + labels[:, None, None, None], labels)
    return DeviceImages(part, torch.zeros(1), torch.ones(1), padding=1, flip=True, device=device)


def test_stochastic_depth_goes_on_where_it_was(
    tmp_path: Path, settings: TrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = dataclasses.replace(settings, batch_size=16, max_epochs=6, warmup_steps=1, lr=0.05)

    def train(checkpoints: Checkpoints | None = None) -> Fit:
        index = torch.arange(60)[None]
        return fit(
            Ensemble(Dropping()), TrainingSets([3], index, images(0), images(1)), settings, checkpoints=checkpoints
        )

    undisturbed = train()
    real, steps = Checkpoints.before_step, [0]

    def die_at_the_tenth_step(self: Checkpoints, name: str, state, interruption):
        def check() -> None:
            steps[0] += 1
            if steps[0] == 10:
                self.save(name, state())
                raise Interrupted

        return check

    with monkeypatch.context() as dying:
        dying.setattr(Checkpoints, "before_step", die_at_the_tenth_step)
        with pytest.raises(Interrupted):
            train(Checkpoints(tmp_path, 1e9))
    assert Checkpoints.before_step is real
    resumed = train(Checkpoints(tmp_path, 1e9))
    assert resumed.curves == undisturbed.curves
    assert all(torch.equal(resumed.last[name], weight) for name, weight in undisturbed.last.items())


def test_batches_larger_than_what_is_gathered_at_a_time_train(settings: TrainSettings) -> None:
    settings = dataclasses.replace(settings, batch_size=2, max_epochs=1, min_epoch_steps=1)
    part = LabelledImages(torch.rand(4, 1, 600, 600), torch.arange(4) % 2)
    place = {"padding": 0, "flip": False, "device": torch.device("cpu")}
    data = DeviceImages(part, torch.zeros(1), torch.ones(1), **place)
    fitted = fit(
        Ensemble(PolynomialClassifier((1, 600, 600), 2)), TrainingSets([0], torch.arange(4)[None], data, data), settings
    )
    assert fitted.curves[0].epochs == 1


@pytest.mark.parametrize("name", [*EVERY, "dropping"])
def test_a_step_waits_for_no_device_and_computes_the_same_there(
    name: str, settings: TrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = dataclasses.replace(settings, batch_size=20, max_epochs=1, min_epoch_steps=2)
    monkeypatch.setattr(Ensemble, "autocast", lambda *_: contextlib.nullcontext())  # it asks which device this is

    def trained(device: torch.device, before_step: Callable[[], None] = lambda: None) -> Training:
        model = (Dropping() if name == "dropping" else EVERY[name]((1, 8, 8))).to(device)
        seeds = [0, 1] if model.stackable else [0]
        subsets = torch.stack([torch.arange(seed, 40 + seed) for seed in seeds]).to(device)
        shape = (60, 1, 4, 4) if name == "dropping" else (60, 1, 8, 8)
        part = LabelledImages(torch.randn(shape, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 2)
        data = DeviceImages(part, torch.zeros(1), torch.ones(1), padding=1, flip=True, device=device)
        training = Training(Ensemble(model), TrainingSets(seeds, subsets, data, data), settings)
        training.before_step = before_step
        list(training.run())
        return training

    here, waits = trained(CPU), []
    with Device() as device:
        there = trained(DEVICE, lambda: waits.append(device.waits.total()))
        assert len(waits) == here.order.steps == 2
        assert len(set(waits)) == 1, device.waits
        for name, weight in there.last.items():
            assert torch.equal(weight.cpu(), here.last[name]), name
    assert [stopping.curve for stopping in there.stopping] == [stopping.curve for stopping in here.stopping]
