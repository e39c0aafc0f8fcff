"""Influence functions against closed forms on a linear model, conjugate gradients on an MLP, and retraining."""

import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import cg
from torch import Tensor

from harness.run_directory import Run
from models.mlp import MLP
from models.tangent.jacobian import jacobian, network_outputs
from models.tangent.kernel import Kernels, ntk
from sample_info.leave_one_out_effects import Effects
from sample_info.linearized.descent import LinearizedDescent
from sample_info.references import cosine, influence, references_of
from sample_info.settings import ReferenceSettings
from tests.sample_info.networks import small_mlp
from tests.sample_info.problems import draws, linear, linear_problem, mlp_problem, retrained

DECAY = 0.5


@functools.cache
def ridge() -> tuple[Tensor, Tensor, Tensor]:
    """Inputs [12, 5] of a ridge regression, with ones; its residuals [12] at the minimum; test inputs."""
    descent = linear_problem(weight_decay=DECAY)
    weights = descent.trained()
    residual = (linear(weights, descent.x) - descent.y).squeeze(1)
    return with_ones(descent.x), residual, with_ones(draws(5, 4, seed=9))


def with_ones(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones(len(x), 1)], dim=1)


def of_ridge(damping: float) -> Effects:
    x, residual, x_test = ridge()
    return influence(Kernels(x @ x.T, x_test @ x.T, ""), residual[:, None], damping)


def test_on_a_linear_model_it_is_the_closed_form_and_off_retraining_by_the_leverage() -> None:
    x, residual, x_test = ridge()
    predicted = of_ridge(DECAY)
    inverse = torch.linalg.inv(x.T @ x + DECAY * torch.eye(5))
    change = residual[:, None] * (x @ inverse)
    torch.testing.assert_close(predicted.weight, change.square().sum(1))
    torch.testing.assert_close(predicted.prediction, (change @ x_test.T).square().mean(1))
    brute = retrained(linear_problem(weight_decay=DECAY), x_test[:, :4])
    leverage = ((x @ inverse) * x).sum(1)
    torch.testing.assert_close(brute.weight, predicted.weight / (1 - leverage) ** 2, rtol=1e-6, atol=0)
    # the control: to first order in the example's weight is not the whole way
    assert (brute.weight / predicted.weight).min() > 1.1
    assert (of_ridge(3.0).weight / predicted.weight).max() < 0.95


def test_the_papers_recursion_arrives_at_a_damping_of_ten_on_the_mean_loss() -> None:
    """h ← v + (1 - 0.01) h - H h / 1000, 1,000 steps, h / 1000 (table 2)."""
    x, residual, _ = ridge()
    curvature = x.T @ x / 12
    v = residual[:, None] * x
    h = v.clone()
    for _ in range(1000):
        h = v + (1 - 0.01) * h - h @ curvature / 1000
    torch.testing.assert_close(of_ridge(12 * 10.0).weight, (h / 1000 / 12).square().sum(1), rtol=1e-3, atol=0)
    assert (of_ridge(0.01).weight / of_ridge(12 * 10.0).weight).min() > 10  # the control


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("damping", [10.0, 0.05])
def test_one_factorisation_is_conjugate_gradients_for_every_example(k: int, damping: float) -> None:
    descent, x_test = mlp_problem(n=20, width=16, k=k)
    weights = descent.trained()
    model = MLP((1, 4, 4), k, width=16, depth=1, activation="relu", parametrization="standard")
    residual = network_outputs(model, weights, descent.x) - descent.y
    predicted = influence(ntk(model, weights, descent.x, x_test), residual, damping)
    j, j_test = (jacobian(model, weights, x) for x in (descent.x, x_test))
    rows = j.flatten(0, 1).numpy()
    matrix = rows.T @ rows + damping * np.eye(rows.shape[1])
    gradients = torch.einsum("nkp,nk->np", j, residual)
    change = torch.stack([torch.from_numpy(cg(matrix, g.numpy(), rtol=1e-12)[0]) for g in gradients])
    torch.testing.assert_close(predicted.weight, change.square().sum(1), rtol=1e-6, atol=0)
    expected = torch.einsum("np,mkp->nmk", change, j_test).square().sum(-1).mean(1)
    torch.testing.assert_close(predicted.prediction, expected, rtol=1e-6, atol=0)


def test_the_commands_damping_is_of_the_mean_loss_and_its_weights_those_where_training_ends(tmp_path: Path) -> None:
    """A damping of the summed loss would be next to none."""
    problem = small_mlp(1).problem(LinearizedDescent(learning_rate=0.3, steps=200, weight_decay=DECAY))
    settings = ReferenceSettings(methods=["influence"], examples=None, influence_damping=[10.0, 0.01])
    references = references_of(problem, settings, Run(tmp_path, "run"))
    assert [*references] == ["influence 10", "influence 0.01"]
    trained = problem.training.trained()
    residual = network_outputs(problem.model, trained, problem.x) - problem.y
    j = jacobian(problem.model, trained, problem.x).squeeze(1)
    for damping, changes in zip((10.0, 0.01), references.values(), strict=True):
        curvature = j.T @ j / 12 + (damping + DECAY / 12) * torch.eye(j.shape[1], dtype=j.dtype)
        change = torch.linalg.solve(curvature, (residual * j / 12).T)
        torch.testing.assert_close(changes.weight, change.square().sum(0), rtol=1e-4, atol=0)


def test_it_predicts_what_retraining_a_converged_mlp_does() -> None:
    descent, x_test = mlp_problem(n=40, side=3, width=32, steps=500, weight_decay=30.0, learning_rate=0.002)
    weights = descent.trained()
    model = MLP((1, 3, 3), 1, width=32, depth=1, activation="relu", parametrization="standard")
    residual = network_outputs(model, weights, descent.x) - descent.y
    predicted = influence(ntk(model, weights, descent.x, x_test), residual, 30.0)
    brute = retrained(descent, x_test)
    assert correlation(predicted.weight, brute.weight) > 0.95
    assert correlation(predicted.prediction, brute.prediction) > 0.9
    shuffled = predicted.weight[torch.randperm(40, generator=torch.Generator().manual_seed(0))]
    assert correlation(shuffled, brute.weight) < 0.5  # the control


def correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


@pytest.mark.parametrize("k", [1, 3])
def test_cosines_are_those_of_gradients(k: int) -> None:
    net = small_mlp(k)
    residual = network_outputs(net.model, net.weights, net.x) - net.y
    effects = cosine(ntk(net.model, net.weights, net.x, net.held_out), residual)
    j, j_held_out = (jacobian(net.model, net.weights, x) for x in (net.x, net.held_out))
    gradients = torch.einsum("nkp,nk->np", j, residual)
    expected = -torch.einsum("np,mkp->nmk", gradients / gradients.norm(dim=1, keepdim=True), j_held_out)
    torch.testing.assert_close(effects.outputs, expected)
    assert bool(effects.weight.isnan().all())
