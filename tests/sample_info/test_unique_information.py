"""Scores are Kullback-Leibler divergences: checked against divergences of Gaussians computed the plain way."""

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from models.tangent.jacobian import jacobian, network_outputs
from models.tangent.kernel import ntk
from sample_info.leave_one_out_effects import functional_information, weight_information
from sample_info.linearized.descent import LinearizedDescent
from sample_info.linearized.dynamics import LinearizedDynamics, leave_one_out
from tests.sample_info.networks import small_mlp

DESCENT = LinearizedDescent(learning_rate=0.02, steps=300, weight_decay=2.0)


def trained(net, descent, remaining=None):
    """Weights (flat) and held-out predictions of the linearised network trained on `kept` examples."""
    kernels = ntk(net.model, net.weights, net.x, net.held_out)
    residual = network_outputs(net.model, net.weights, net.x) - net.y
    if remaining is not None:  # n stays that of all examples, so that the others' gradients do
        rows = remaining.repeat_interleave(net.y.shape[1])
        scale = len(residual) / int(remaining.sum())
        descent = LinearizedDescent(
            learning_rate=descent.learning_rate / scale, steps=descent.steps, weight_decay=descent.weight_decay
        )
        dynamics = LinearizedDynamics(kernels.train[rows][:, rows], residual[remaining], descent)
        x, cross = net.x[remaining], kernels.held_out[:, rows]
    else:
        dynamics, x, cross = LinearizedDynamics(kernels.train, residual, descent), net.x, kernels.held_out
    change = torch.einsum("nkp,nk->p", jacobian(net.model, net.weights, x), dynamics.coefficients)
    predictions = dynamics.predictions(network_outputs(net.model, net.weights, net.held_out), cross)
    return torch.cat([w.double().flatten() for w in net.weights.values()]) + change, predictions


@pytest.mark.parametrize("k", [1, 3])
def test_scores_are_divergences_of_smoothed_weights_and_predictions(k: int) -> None:
    net, sigma = small_mlp(k), 0.3
    kernels = ntk(net.model, net.weights, net.x, net.held_out)
    residual = network_outputs(net.model, net.weights, net.x) - net.y
    changes = leave_one_out(LinearizedDynamics(kernels.train, residual, DESCENT), kernels.held_out, memory_bytes=1e4)
    w, f = trained(net, DESCENT)
    for i in (0, 7):
        w_without, f_without = trained(net, DESCENT, torch.arange(len(net.x)) != i)
        weights = kl_divergence(Normal(w, sigma), Normal(w_without, sigma)).sum()
        predictions = kl_divergence(Normal(f, sigma), Normal(f_without, sigma)).sum(1).mean()
        assert float(weight_information(changes, sigma)[i]) == pytest.approx(float(weights), rel=1e-8)
        assert float(functional_information(changes, sigma)[i]) == pytest.approx(float(predictions), rel=1e-8)
