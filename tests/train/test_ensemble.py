"""Losses, gradients and trainings of several networks at once are those of each."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from models.any_module import AnyModule
from models.classifier import Classifier
from models.mlp import MLP
from models.polynomial import PolynomialClassifier
from tests.models.every_model import EVERY
from tests.train.test_training import images, run, small
from train.ensemble import Ensemble
from train.epoch_trainer import Fit, fit_members
from train.settings import TrainSettings


class UnstackableMLP(MLP):
    stackable = False


class Net(torch.nn.Module):
    """Any module of a user's."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.GELU(), torch.nn.Flatten())
        self.norm, self.readout = torch.nn.LayerNorm(144), torch.nn.Linear(144, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.norm(self.layers(x)))


NETWORKS = {**EVERY, "module": lambda: AnyModule(Net, (1, 8, 8), 10)}


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", NETWORKS)
def test_losses_and_gradients_are_those_of_each_member_by_autograd(name: str, precision: torch.dtype) -> None:
    ensemble, draws = Ensemble(NETWORKS[name](), precision), torch.Generator().manual_seed(0)
    weights = ensemble.initial_weights([torch.Generator().manual_seed(seed) for seed in range(3)], torch.device("cpu"))
    for weight in weights.values():  # away from the zeros at which readouts start
        weight.add_(0.05 * torch.randn(weight.shape, generator=draws)).requires_grad_()
    x, z = torch.randn(3, 5, 1, 8, 8, generator=draws), torch.arange(15).view(3, 5) % 10
    rates = torch.full((3, len(ensemble.drop_rates), 5), 0.5)
    factors = 2 * torch.bernoulli(rates, generator=draws)
    losses, gradients = ensemble.gradients(weights, x, z, factors)

    def reference(s: int) -> Tensor:
        for layer, of_layer in zip(ensemble.model.stochastic_depth(), factors[s], strict=True):
            layer.factors = of_layer
        member = {name: weight[s] for name, weight in weights.items()}
        with ensemble.autocast(x.device):
            logits = torch.func.functional_call(ensemble.model, member, (x[s],))
        return torch.nn.functional.cross_entropy(logits.float(), z[s])

    expected = torch.stack([reference(s) for s in range(3)])
    derived = torch.autograd.grad(expected.sum(), [weights[name] for name in ensemble.names])
    together, apart = (torch.cat([gradient.flatten() for gradient in each]) for each in (gradients, derived))
    # On a CPU, autocast leaves the convolutions of a vmap in float32: timm's gradients then differ by 4 %.
    tolerance = 1e-5 if precision is torch.float32 else 0.1
    torch.testing.assert_close(losses, expected.detach(), rtol=tolerance, atol=0)
    assert float((together - apart).norm()) < tolerance * float(apart.norm())
    if precision is torch.float32:
        for parameter, *pair in zip(ensemble.names, gradients, derived, strict=True):
            torch.testing.assert_close(*pair, rtol=1e-4, atol=1e-6 * float(apart.abs().max()), msg=parameter)
    if rates.numel():  # the negative control
        others = ensemble.gradients(weights, x, z, factors.roll(1, 0))[0]
        assert float((others - losses).abs().min()) > 1e-4


@pytest.mark.parametrize("name", EVERY)
def test_logits_of_shared_images_are_those_of_each_member(name: str) -> None:
    ensemble, draws = Ensemble(EVERY[name]((2, 9, 9))), torch.Generator().manual_seed(0)
    weights = {n: 0.1 * torch.randn(2, *p.shape, generator=draws) for n, p in ensemble.model.named_parameters()}
    x = torch.randn(6, 2, 9, 9, generator=draws)
    together = ensemble.logits(weights, x)
    alone = [ensemble.logits({n: weight[s : s + 1] for n, weight in weights.items()}, x) for s in range(2)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-4, atol=1e-4 * float(together.abs().max()))
    assert not torch.allclose(together[0], together[1], rtol=0.1)


def test_the_model_has_its_own_parameters_back_afterwards(data) -> None:
    ensemble = Ensemble(small())
    before = dict(ensemble.model.named_parameters())
    weights = {name: torch.randn(2, *p.shape) for name, p in before.items()}
    ensemble.logits(weights, data["test"].images[:3])
    after = dict(ensemble.model.named_parameters())
    assert all(after[name] is parameter for name, parameter in before.items())


def test_scores_are_means_in_bits_and_those_of_each_example(data) -> None:
    ensemble, images = Ensemble(small()), data["test"]
    draws = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(2, *p.shape, generator=draws) for name, p in ensemble.model.named_parameters()}
    scores = ensemble.score(weights, images)
    x, z = images.plain(torch.arange(len(images)).expand(2, -1))
    logits = ensemble.logits(weights, x).double()
    nats = torch.nn.functional.cross_entropy(logits.mT, z, reduction="none")
    torch.testing.assert_close(scores.bits, nats.mean(1) / math.log(2), rtol=1e-5, atol=0)
    torch.testing.assert_close(scores.example_bits.double(), nats / math.log(2), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(scores.accuracy, (logits.argmax(-1) == z).double().mean(1))


def test_networks_trained_in_bfloat16_are_scored_in_float32(data) -> None:
    ensembles = [Ensemble(small(), precision) for precision in (torch.float32, torch.bfloat16)]
    weights = {name: torch.randn(2, *p.shape) for name, p in ensembles[0].model.named_parameters()}
    exact, scored = (e.score(weights, data["test"]).bits for e in ensembles)
    assert torch.equal(exact, scored)
    x, z = data["test"].plain(torch.arange(50).expand(2, -1))
    leaves = {name: weight.requires_grad_() for name, weight in weights.items()}
    exact, trained = (e.gradients(leaves, x, z)[0] for e in ensembles)
    assert 0 < float((exact - trained).abs().max()) < 5  # the negative control


@pytest.mark.parametrize(
    ("model", "worth_bits"), [(small(), 0.01), (PolynomialClassifier((1, 8, 8), 10), 0.06)], ids=["mlp", "linear"]
)
def test_a_member_computes_what_it_computes_alone(
    model: Classifier, worth_bits: float, data, settings: TrainSettings
) -> None:
    settings = dataclasses.replace(settings, max_epochs=40, patience_steps=8, min_improvement_bits=worth_bits, lr=0.01)
    together = run(model, [0, 1, 2, 3], 60, data, settings)
    assert len({curve.epochs for curve in together.curves}) > 1  # some stop while others go on
    for s in range(4):
        alone = run(model, [s], 60, data, settings)
        assert together.curves[s].epoch == alone.curves[0].epoch
        assert together.curves[s].validation_loss_bits == pytest.approx(alone.curves[0].validation_loss_bits, abs=2e-4)
        for name in together.best:
            torch.testing.assert_close(together.best[name][s], alone.best[name][0], rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(together.last[name][s], alone.last[name][0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", [*NETWORKS, "stacked by vmap"])
def test_a_short_training_is_the_same_in_one_network_and_one_after_another(name: str, settings: TrainSettings) -> None:
    settings = dataclasses.replace(settings, batch_size=16, max_epochs=2, min_epoch_steps=2, warmup_steps=0)
    model = NETWORKS[name]() if name in NETWORKS else small(UnstackableMLP)
    data = {"train": images(0, side=8), "validation": images(1, side=8)}
    subsets = torch.stack([torch.arange(seed, 32 + seed) for seed in range(2)])

    def trained(stack: int) -> Fit:
        return fit_members(Ensemble(model), data, [3, 4], subsets, settings, stack=stack)

    together, alone = trained(2), trained(1)
    assert (together.stack, alone.stack) == (2, 1)
    for a, b in zip(together.curves, alone.curves, strict=True):
        assert a.validation_loss_bits == pytest.approx(b.validation_loss_bits, rel=1e-3)
    for a, b in zip(together.score(data["validation"]), alone.score(data["validation"]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
    assert together.curves[0].validation_loss_bits[-1] != pytest.approx(together.curves[1].validation_loss_bits[-1])


def test_scores_do_not_depend_on_the_batch_size(data, settings: TrainSettings) -> None:
    fitted = run(small(), [0, 1], 50, data, settings)
    ensembles = [Ensemble(small(), eval_batch_size=size) for size in (1000, 7)]
    for index in (None, torch.arange(359), torch.stack([torch.arange(100), torch.arange(100, 200)])):
        whole, pieces = (dataclasses.replace(fitted, ensemble=e).score(data["test"], index) for e in ensembles)
        torch.testing.assert_close(whole.bits, pieces.bits, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(whole.example_bits, pieces.example_bits, rtol=1e-4, atol=1e-5)
        assert torch.equal(whole.accuracy, pieces.accuracy)
