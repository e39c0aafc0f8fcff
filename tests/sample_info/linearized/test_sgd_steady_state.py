"""SGD's steady state against a Lyapunov equation of all parameters, and its information against a divergence."""

import pytest
import torch
from scipy.linalg import solve_continuous_lyapunov
from torch.distributions import MultivariateNormal, kl_divergence

from models.tangent.jacobian import jacobian
from sample_info.linearized.descent import LinearizedDescent
from sample_info.linearized.sgd_steady_state import sgd_information, steady_state
from tests.sample_info.networks import linearized, small_mlp

DECAYING = LinearizedDescent(learning_rate=0.02, steps=300, weight_decay=2.0)


def test_the_steady_state_solves_the_lyapunov_equation_of_all_parameters() -> None:
    """Bartels-Stewart on [parameters, parameters], from the Jacobian, against ours in the span of the gradients."""
    net, b = small_mlp(2, n=8), 4
    minimum = linearized(net, DECAYING)[0].at_minimum
    state = steady_state(minimum, b)
    n, j = len(net.x), jacobian(net.model, net.weights, net.x)
    flat = j.flatten(0, 1)
    h = (flat.T @ flat + DECAYING.weight_decay * torch.eye(flat.shape[1])) / n
    change = flat.T @ minimum.coefficients.flatten()
    errors = minimum.residual + j @ change
    g = (j * errors[..., None]).sum(1).T
    noise = torch.cov(g, correction=0)
    sigma = torch.from_numpy(solve_continuous_lyapunov(h.numpy(), (DECAYING.learning_rate / b * noise).numpy()))
    # an orthonormal basis of the gradients' span, in which ∇f_0(X) is state.basis
    basis = torch.linalg.lstsq(state.basis.T, flat).solution
    torch.testing.assert_close(basis @ basis.T, torch.eye(len(basis), dtype=torch.float64), rtol=0, atol=1e-8)
    torch.testing.assert_close(basis.T @ state.covariance @ basis, sigma, rtol=1e-6, atol=1e-8 * float(sigma.max()))
    balance = state.hessian[:, None] * state.covariance + state.covariance * state.hessian
    torch.testing.assert_close(balance, DECAYING.learning_rate / b * state.noise)


def test_sgd_information_is_a_divergence_and_a_floor_only_lowers_it() -> None:
    net = small_mlp(1, n=6)
    minimum = linearized(net, DECAYING)[0].at_minimum
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
    without = LinearizedDescent(learning_rate=0.02, steps="converged")
    with pytest.raises(AssertionError, match="without noise"):
        steady_state(linearized(net, without)[0], 2)
    with pytest.raises(AssertionError, match="at the minimum"):
        steady_state(linearized(net, DECAYING)[0], 2)  # stopped before its minimum
