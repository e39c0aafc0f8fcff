"""Scores are Kullback-Leibler divergences: checked against divergences of Gaussians computed the plain way."""

import math

import pytest
import torch
from scipy.linalg import solve_continuous_lyapunov
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from models.tangent.jacobian import jacobian, network_outputs
from models.tangent.ntk import ntk
from sample_info.effects import functional_information, loss_effects, weight_information
from sample_info.linearized.dynamics import LinearizedDynamics, leave_one_out, sgd_information, steady_state
from sample_info.linearized.training import LinearizedDescent
from tests.sample_info.networks import small_mlp

DESCENT = LinearizedDescent(learning_rate=0.02, steps=300, weight_decay=2.0)


def trained(net, descent, kept=None):
    """Weights (flat) and held-out predictions of the linearised network trained on `kept` examples."""
    kernels = ntk(net.model, net.weights, net.x, net.held_out)
    residual = network_outputs(net.model, net.weights, net.x) - net.y
    if kept is not None:  # n stays that of all examples, so that the others' gradients do
        rows = kept.repeat_interleave(net.y.shape[1])
        scale = len(residual) / int(kept.sum())
        descent = LinearizedDescent(
            learning_rate=descent.learning_rate / scale, steps=descent.steps, weight_decay=descent.weight_decay
        )
        dynamics = LinearizedDynamics(kernels.train[rows][:, rows], residual[kept], descent)
        x, cross = net.x[kept], kernels.held_out[:, rows]
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


@pytest.mark.parametrize("k", [1, 3])
def test_effects_on_loss_are_of_the_predictions_with_and_without(k: int) -> None:
    net = small_mlp(k)
    kernels = ntk(net.model, net.weights, net.x, net.held_out)
    residual = network_outputs(net.model, net.weights, net.x) - net.y
    effects, _ = LinearizedDynamics(kernels.train, residual, DESCENT).effects(torch.tensor([7]), kernels.held_out)
    _, f = trained(net, DESCENT)
    _, f_without = trained(net, DESCENT, torch.arange(len(net.x)) != 7)
    torch.testing.assert_close(effects.outputs[0], f - f_without)
    y = net.y[: len(f)]
    change = ((f - y).square().sum(1) - (f_without - y).square().sum(1)) / 2
    torch.testing.assert_close(loss_effects(effects.outputs, f, y)[0], change)


def test_the_steady_state_solves_the_lyapunov_equation_of_all_parameters() -> None:
    """Bartels-Stewart on [parameters, parameters], from the Jacobian, against ours in the span of the gradients."""
    net, b = small_mlp(2, n=8), 4
    minimum = LinearizedDynamics(
        ntk(net.model, net.weights, net.x, net.held_out).train,
        network_outputs(net.model, net.weights, net.x) - net.y,
        DESCENT,
    ).at_minimum
    state = steady_state(minimum, b)
    n, j = len(net.x), jacobian(net.model, net.weights, net.x)
    flat = j.flatten(0, 1)
    h = (flat.T @ flat + DESCENT.weight_decay * torch.eye(flat.shape[1])) / n
    change = flat.T @ minimum.coefficients.flatten()
    errors = minimum.residual + j @ change
    g = (j * errors[..., None]).sum(1).T
    noise = torch.cov(g, correction=0)
    sigma = torch.from_numpy(solve_continuous_lyapunov(h.numpy(), (DESCENT.learning_rate / b * noise).numpy()))
    # an orthonormal basis of the gradients' span, in which ∇f_0(X) is state.basis
    basis = torch.linalg.lstsq(state.basis.T, flat).solution
    torch.testing.assert_close(basis @ basis.T, torch.eye(len(basis), dtype=torch.float64), rtol=0, atol=1e-8)
    torch.testing.assert_close(basis.T @ state.covariance @ basis, sigma, rtol=1e-6, atol=1e-8 * float(sigma.max()))
    balance = state.hessian[:, None] * state.covariance + state.covariance * state.hessian
    torch.testing.assert_close(balance, DESCENT.learning_rate / b * state.noise)


def test_sgd_information_is_a_divergence_and_a_floor_only_lowers_it() -> None:
    net = small_mlp(1, n=6)
    dynamics = LinearizedDynamics(
        ntk(net.model, net.weights, net.x, net.held_out).train,
        network_outputs(net.model, net.weights, net.x) - net.y,
        DESCENT,
    )
    minimum = dynamics.at_minimum
    scores, floored = sgd_information(minimum, 2, variance_floor=1e-6)
    state = steady_state(minimum, 2)
    variances, axes = torch.linalg.eigh(state.covariance)
    raised = axes * variances.clamp(min=1e-6 * variances[-1]) @ axes.T
    moved = state.basis @ minimum.differences(torch.arange(6))
    for i in range(6):
        with_, without = (MultivariateNormal(m, raised) for m in (moved[:, i], torch.zeros(len(moved)).double()))
        assert float(scores[i]) == pytest.approx(float(kl_divergence(with_, without)), rel=1e-6)
    assert 0 <= floored < 1
    higher, _ = sgd_information(minimum, 2, variance_floor=1e-3)
    assert bool((higher <= scores).all())
    half, _ = sgd_information(minimum, 4, variance_floor=1e-6)  # half the noise, twice the information
    torch.testing.assert_close(half, 2 * scores)


def test_a_steady_state_needs_weight_decay_and_its_limit() -> None:
    net = small_mlp(1)
    kernel = ntk(net.model, net.weights, net.x, net.held_out).train
    without = LinearizedDescent(learning_rate=0.02, steps=math.inf)
    with pytest.raises(AssertionError, match="without noise"):
        steady_state(LinearizedDynamics(kernel, -net.y, without), 2)
    with pytest.raises(AssertionError, match="at the minimum"):
        steady_state(LinearizedDynamics(kernel, -net.y, DESCENT), 2)  # stopped before its minimum
