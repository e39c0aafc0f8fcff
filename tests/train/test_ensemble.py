"""Losses and gradients of several networks at once are those of each."""

import torch
from torch import Tensor

from tests.train.test_training import small
from train.ensemble import Ensemble


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


def test_networks_trained_in_bfloat16_are_scored_in_float32(data) -> None:
    ensembles = [Ensemble(small(), precision) for precision in (torch.float32, torch.bfloat16)]
    weights = {name: torch.randn(2, *p.shape) for name, p in ensembles[0].model.named_parameters()}
    exact, scored = (e.score(weights, data["test"]).bits for e in ensembles)
    assert torch.equal(exact, scored)
    x, z = data["test"].plain(torch.arange(50).expand(2, -1))
    leaves = {name: weight.requires_grad_() for name, weight in weights.items()}
    exact, trained = (e.gradients(leaves, x, z)[0] for e in ensembles)
    assert 0 < float((exact - trained).abs().max()) < 5  # the negative control
