"""Losses, gradients and trainings of several networks at once are those of each."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from models.classifier import Classifier
from models.mlp import MLP
from models.polynomial import PolynomialClassifier
from tests.train.test_training import run, small
from train.ensemble import Ensemble
from train.randomness import permutation
from train.settings import TrainSettings


class UnstackableMLP(MLP):
    stackable = False


def test_losses_and_gradients_are_those_of_each_member_by_autograd(data) -> None:
    ensemble = Ensemble(small())
    names = ensemble.names
    draws = torch.Generator().manual_seed(0)
    weights = {
        name: (0.3 * torch.randn(2, *p.shape, generator=draws)).requires_grad_()
        for name, p in ensemble.model.named_parameters()
    }
    x, z = data["test"].plain(torch.arange(20).view(2, 10))
    losses, gradients = ensemble.gradients(weights, x, z)

    def reference(s: int) -> Tensor:
        member = {name: weight[s] for name, weight in weights.items()}
        return torch.nn.functional.cross_entropy(torch.func.functional_call(ensemble.model, member, (x[s],)), z[s])

    expected = torch.stack([reference(0), reference(1)])
    torch.testing.assert_close(losses, expected.detach())
    for gradient, derived in zip(
        gradients, torch.autograd.grad(expected.sum(), [weights[name] for name in names]), strict=True
    ):
        torch.testing.assert_close(gradient, derived, rtol=1e-4, atol=1e-5)


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


def test_an_architecture_that_cannot_be_stacked_gives_the_same(data, settings: TrainSettings) -> None:
    stacked, single = (run(small(kind), [0, 1], 100, data, settings) for kind in (MLP, UnstackableMLP))
    assert (stacked.stack, single.stack) == (2, 1)
    index = torch.stack([permutation(seed, len(data["train"]))[100:300] for seed in (0, 1)])
    for a, b in zip(stacked.score(data["train"], index), single.score(data["train"], index), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_scores_do_not_depend_on_the_batch_size(data, settings: TrainSettings) -> None:
    fitted = run(small(), [0, 1], 50, data, settings)
    ensembles = [Ensemble(small(), eval_batch_size=size) for size in (1000, 7)]
    for index in (None, torch.arange(359), torch.stack([torch.arange(100), torch.arange(100, 200)])):
        whole, pieces = (dataclasses.replace(fitted, ensemble=e).score(data["test"], index) for e in ensembles)
        torch.testing.assert_close(whole.bits, pieces.bits, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(whole.example_bits, pieces.example_bits, rtol=1e-4, atol=1e-5)
        assert torch.equal(whole.accuracy, pieces.accuracy)
