"""The training loop: it learns, evaluates, keeps the best weights, waits for no device, and says what to lower."""

import contextlib
import dataclasses
import math
import shutil
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from erasure.dataset import LabelledImages
from models.classifier import Classifier
from models.mlp import MLP
from models.polynomial import PolynomialClassifier
from models.stackable_layers import Linear
from models.stochastic_depth import StochasticDepth
from tests.fake_device import DEVICE, Device
from tests.models.every_model import EVERY
from train.device_images import DeviceImages
from train.ensemble import Ensemble
from train.epoch_trainer import EpochTrainer, Fit, fit_members
from train.randomness import permutation
from train.settings import TrainSettings
from train.trainer import NonFiniteLossError
from train.training_step import require_compiler

CPU = torch.device("cpu")


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


def images(seed: int, device: torch.device = CPU, side: int = 4) -> DeviceImages:
    drawn, labels = torch.randn(60, 1, side, side, generator=torch.Generator().manual_seed(seed)), torch.arange(60) % 2
    part = LabelledImages(drawn + labels[:, None, None, None], labels)
    return DeviceImages(part, torch.zeros(1), torch.ones(1), padding=1, flip=True, device=device)


def test_batches_larger_than_what_is_gathered_at_a_time_train(settings: TrainSettings) -> None:
    settings = dataclasses.replace(settings, batch_size=2, max_epochs=1, min_epoch_steps=1)
    part = LabelledImages(torch.rand(4, 1, 600, 600), torch.arange(4) % 2)
    place = {"padding": 0, "flip": False, "device": torch.device("cpu")}
    data = DeviceImages(part, torch.zeros(1), torch.ones(1), **place)
    ensemble, splits = Ensemble(PolynomialClassifier((1, 600, 600), 2)), {"train": data, "validation": data}
    fitted = fit_members(ensemble, splits, [0], torch.arange(4)[None], settings)
    assert fitted.curves[0].epochs == 1


@pytest.mark.parametrize("name", [*EVERY, "dropping"])
def test_a_step_waits_for_no_device_and_computes_the_same_there(
    name: str, settings: TrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = dataclasses.replace(settings, batch_size=20, max_epochs=1, min_epoch_steps=2)
    monkeypatch.setattr(Ensemble, "autocast", lambda *_: contextlib.nullcontext())  # it asks which device this is

    def trained(device: torch.device, before_step: Callable[[], None] = lambda: None) -> EpochTrainer:
        model = (Dropping() if name == "dropping" else EVERY[name]((1, 8, 8))).to(device)
        seeds = [0, 1]
        subsets = torch.stack([torch.arange(seed, 40 + seed) for seed in seeds]).to(device)
        shape = (60, 1, 4, 4) if name == "dropping" else (60, 1, 8, 8)
        part = LabelledImages(torch.randn(shape, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 2)
        data = DeviceImages(part, torch.zeros(1), torch.ones(1), padding=1, flip=True, device=device)
        splits = {"train": data, "validation": data}
        training = EpochTrainer(Ensemble(model), splits, seeds, subsets, settings)
        training.before_step = before_step
        training.run()
        return training

    here, waits = trained(CPU), []
    with Device() as device:
        there = trained(DEVICE, lambda: waits.append(device.waits.total()))
        assert len(waits) == here.order.steps == 2
        assert len(set(waits)) == 1, device.waits
        for name, weight in there.last.items():
            assert torch.equal(weight.cpu(), here.last[name]), name
    assert there.curves == here.curves


def small(kind: type[MLP] = MLP) -> Classifier:
    return kind((1, 8, 8), 10, width=24, depth=2, activation="relu", parametrization="mup")


def run(model: Classifier, seeds: list[int], n: int, data, settings: TrainSettings) -> Fit:
    subsets = torch.stack([permutation(seed, len(data["train"]))[:n] for seed in seeds])
    return fit_members(Ensemble(model), data, seeds, subsets, settings)


def test_it_learns(data, settings: TrainSettings) -> None:
    fitted = run(small(), [0, 1], 1000, data, dataclasses.replace(settings, max_epochs=15))
    bits, accuracy, each = fitted.score(data["test"])
    assert (bits < 0.8).all()
    assert (accuracy > 0.8).all()
    assert each.shape == (2, len(data["test"]))
    assert each.mean(1).tolist() == pytest.approx(bits.tolist(), rel=1e-5)
    for curve, loss in zip(fitted.curves, bits, strict=True):
        assert curve.validation_loss_bits[0] == pytest.approx(math.log2(10))  # epoch 0: the zero readout
        assert curve.best_validation_bits == min(curve.validation_loss_bits)
        assert abs(float(loss) - curve.best_validation_bits) < 0.5


def test_the_best_weights_are_those_of_the_best_epoch(data, settings: TrainSettings) -> None:
    settings = dataclasses.replace(settings, max_epochs=30, patience_steps=24, lr=0.03)
    fitted = run(small(), [0, 1], 40, data, settings)
    assert any(curve.best_epoch < curve.epochs for curve in fitted.curves)
    best, *_ = fitted.score(data["validation"])
    last, *_ = fitted.score(data["validation"], weights=fitted.last)
    assert best.tolist() == pytest.approx([curve.best_validation_bits for curve in fitted.curves], abs=1e-5)
    assert last.tolist() == pytest.approx([curve.validation_loss_bits[-1] for curve in fitted.curves], abs=1e-5)


def test_evaluations_are_spaced_and_the_last_epoch_is_evaluated(data, settings: TrainSettings) -> None:
    """Weights that do not move have the readout's loss; it is the mean over batches, however many there are."""
    still = dataclasses.replace(settings, eval_every=3, max_epochs=7, patience_steps=36, lr=1e-12)
    (curve,) = run(small(), [0], 50, data, still).curves
    assert curve.epoch == [0, 3, 6, 7]
    assert curve.train_loss_bits == [None, *[pytest.approx(math.log2(10))] * 3]


def test_a_diverging_run_says_where_and_what_to_lower(data, settings: TrainSettings) -> None:
    bad = dataclasses.replace(settings, lr=1e38)
    with pytest.raises(NonFiniteLossError, match=r"training size 50, seed 4, epoch [123], learning rate 1e\+38: lower"):
        run(small(), [4], 50, data, bad)


def test_bfloat16_autocast_trains(data, settings: TrainSettings) -> None:
    subsets = permutation(0, len(data["train"]))[None, :300]
    fitted = fit_members(Ensemble(small(), torch.bfloat16), data, [0], subsets, settings)
    assert fitted.curves[0].best_validation_bits < 2.5
    assert fitted.best["readout.weight"].dtype == torch.float32


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_steps_train_as_others_do(settings: TrainSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of processes
    settings = dataclasses.replace(settings, batch_size=8, max_epochs=4, min_epoch_steps=4, weight_decay=0.1)
    data, subsets = {"train": images(0), "validation": images(1)}, torch.arange(64).view(2, 32) % 60
    compiled, eager = (
        fit_members(Ensemble(Dropping()), data, [3, 4], subsets, dataclasses.replace(settings, compile=each), stack=2)
        for each in (True, False)
    )
    for one, other in zip(compiled.curves, eager.curves, strict=True):
        assert one.validation_loss_bits == pytest.approx(other.validation_loss_bits, rel=0, abs=1e-5)
        assert one.validation_loss_bits[-1] < one.validation_loss_bits[0] - 0.1
    assert not torch.equal(compiled.last["straight.weight"], eager.last["straight.weight"])  # it was compiled


def test_without_a_compiler_it_says_what_is_missing(
    data, settings: TrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ValueError, match=r"train.compile=true on cpu: needs a C\+\+ compiler \(no-such-compiler\)"):
        run(small(), [0], 40, data, dataclasses.replace(settings, compile=True))
    monkeypatch.setenv("CC", "no-such-compiler")  # triton's, which compiles its launcher
    with pytest.raises(
        ValueError, match=r"train.compile=true on cuda: needs (a C compiler \(no-such-compiler\)|triton)"
    ):
        require_compiler(torch.device("cuda"))
