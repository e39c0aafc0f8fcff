"""Influence functions against closed forms on a linear model, dense curvature on an MLP, and retraining."""

import logging
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import hessian, jacrev

from sample_info.curvature import SquaredLoss
from sample_info.influence import influence_parts
from sample_info.leave_one_out import LeaveOneOut
from sample_info.retraining import retrain_without_each
from sample_info.solvers import ConjugateGradients, Lissa, conjugate_gradients
from tests.sample_info.problems import draws, linear, linear_problem, mlp_problem

DECAY = 0.5


def influence(*arguments: Any, **options: Any) -> LeaveOneOut:
    """All parts as one."""
    return LeaveOneOut.joined([*influence_parts(*arguments, **options)])


def trained_linear() -> tuple[SquaredLoss, Tensor]:
    """A ridge regression at its minimum, and test inputs."""
    descent = linear_problem(weight_decay=DECAY)
    change = descent.train(torch.ones(1, 12))
    weights = {name: weight + change[name][0] for name, weight in descent.initial.items()}
    return SquaredLoss(linear, weights, descent.x, descent.y), draws(5, 4, seed=9)


def with_ones(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones(len(x), 1)], dim=1)


def test_on_a_linear_model_it_is_the_closed_form_and_off_retraining_by_the_leverage() -> None:
    loss, x_test = trained_linear()
    found = influence(loss, x_test, ConjugateGradients(damping=0.0, tolerance=1e-12), weight_decay=DECAY)
    x, residual = with_ones(loss.x), (linear(loss.weights, loss.x) - loss.y).squeeze(1)
    inverse = torch.linalg.inv(x.T @ x + DECAY * torch.eye(5))
    change = residual[:, None] * (x @ inverse)
    torch.testing.assert_close(found.weight_change, change.square().sum(1))
    torch.testing.assert_close(found.prediction_change, (change @ with_ones(x_test).T).square().mean(1))
    retrained = retrain_without_each(linear_problem(weight_decay=DECAY), x_test)
    leverage = ((x @ inverse) * x).sum(1)
    exact = found.weight_change / (1 - leverage) ** 2
    torch.testing.assert_close(retrained.weight_change, exact, rtol=1e-6, atol=0)
    # the control: to first order in the example's weight is not the whole way
    assert (retrained.weight_change / found.weight_change).min() > 1.1
    damped = influence(loss, x_test, ConjugateGradients(damping=3.0), weight_decay=DECAY)
    assert (damped.weight_change / found.weight_change).max() < 0.95


def test_lissa_arrives_at_its_own_closed_form() -> None:
    loss, x_test = trained_linear()
    found = influence(loss, x_test, Lissa(steps=600, scale=10.0, damping=0.01), weight_decay=DECAY)
    x, residual = with_ones(loss.x), (linear(loss.weights, loss.x) - loss.y).squeeze(1)
    curvature = x.T @ x / 12 + (DECAY / 12 + 0.01 * 10.0) * torch.eye(5)
    change = residual[:, None] * (x @ torch.linalg.inv(curvature)) / 12
    torch.testing.assert_close(found.weight_change, change.square().sum(1))
    undamped = residual[:, None] * (x @ torch.linalg.inv(curvature - 0.1 * torch.eye(5))) / 12
    assert (undamped.square().sum(1) / found.weight_change).min() > 1.05  # the control: damping · scale counts


def test_lissa_on_batches_comes_near_the_whole_and_is_repeatable() -> None:
    loss, x_test = trained_linear()
    whole, batches, again, other = (
        influence(loss, x_test, Lissa(steps=400, scale=30.0, damping=0.0, **options), weight_decay=DECAY)
        for options in ({}, {"batch_size": 6}, {"batch_size": 6}, {"batch_size": 6, "seed": 1})
    )
    assert torch.equal(batches.weight_change, again.weight_change)
    assert not torch.equal(batches.weight_change, other.weight_change)
    assert correlation(batches.weight_change, whole.weight_change) > 0.95


def test_products_are_those_of_dense_matrices() -> None:
    descent, x_test = mlp_problem(n=6, side=2, width=3, k=2)
    loss = SquaredLoss(descent.network, descent.initial, descent.x, descent.y)
    v = draws(3, loss.num_parameters, seed=11)

    def outputs(row: Tensor, x: Tensor = descent.x) -> Tensor:
        return descent.network(loss.unravel(row), x)

    at = loss.ravel(descent.initial)
    jacobian = jacrev(outputs)(at).flatten(0, 1)
    torch.testing.assert_close(loss.gauss_newton()(v), v @ jacobian.T @ jacobian)
    dense = hessian(lambda row: 0.5 * (outputs(row) - descent.y).square().sum())(at)
    torch.testing.assert_close(loss.hessian()(v), v @ dense.T)
    assert (dense - jacobian.T @ jacobian).norm() > 0.1 * dense.norm()  # the control: they are two matrices
    halves = [loss.hessian(torch.tensor(rows))(v) for rows in ([0, 1, 2], [3, 4, 5])]
    torch.testing.assert_close(halves[0] + halves[1], loss.hessian()(v))
    gradients = loss.gradients(torch.tensor([4, 1]))
    residual = outputs(at) - descent.y
    expected = torch.einsum("nk,nkp->np", residual, jacobian.unflatten(0, (6, 2)))
    torch.testing.assert_close(gradients, expected[[4, 1]])
    torch.testing.assert_close(
        loss.change_of_outputs(v, x_test), torch.einsum("nkp,mp->mnk", jacrev(outputs)(at, x_test), v)
    )


def correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


def test_it_predicts_what_retraining_a_converged_mlp_does() -> None:
    descent, x_test = mlp_problem(n=40, side=3, width=32, steps=500, weight_decay=30.0, learning_rate=0.002)
    change = descent.train(torch.ones(1, 40))
    weights = {name: weight + change[name][0] for name, weight in descent.initial.items()}
    loss = SquaredLoss(descent.network, weights, descent.x, descent.y)
    retrained = retrain_without_each(descent, x_test)
    for curvature in (ConjugateGradients(damping=0.0), Lissa(steps=200, scale=10.0, damping=0.0)):
        found = influence(loss, x_test, curvature, weight_decay=30.0)
        assert correlation(found.weight_change, retrained.weight_change) > 0.95
        assert correlation(found.prediction_change, retrained.prediction_change) > 0.9
    shuffled = found.weight_change[torch.randperm(40, generator=torch.Generator().manual_seed(0))]
    assert correlation(shuffled, retrained.weight_change) < 0.5  # the control


def test_blocks_of_examples_change_nothing() -> None:
    loss, x_test = trained_linear()
    solver = ConjugateGradients(damping=0.1, tolerance=1e-12)
    whole, parts = (influence(loss, x_test, solver, memory_bytes=size) for size in (2**31, 1))
    torch.testing.assert_close(parts.weight_change, whole.weight_change)
    some = influence(loss, x_test, solver, torch.tensor([7, 2]))
    torch.testing.assert_close(some.weight_change, whole.weight_change[[7, 2]])


def test_conjugate_gradients_solve_every_row_and_say_where_they_stop(caplog: pytest.LogCaptureFixture) -> None:
    root = draws(8, 8, seed=0)
    matrix = root @ root.T + 0.01 * torch.eye(8)
    b = torch.cat([draws(3, 8, seed=1), torch.zeros(1, 8), matrix[:1]])
    with caplog.at_level(logging.WARNING):
        v = conjugate_gradients(lambda rows: rows @ matrix, b, 1e-10, 200)
        assert not caplog.records
        torch.testing.assert_close(v @ matrix, b, rtol=0, atol=1e-7)
        conjugate_gradients(lambda rows: rows @ matrix, b, 1e-10, 2)
    assert "stopped after 2 iterations at a relative residual of" in caplog.text


def test_what_cannot_work_is_refused() -> None:
    loss, x_test = trained_linear()
    with pytest.raises(ValueError, match=r"damping=0 without weight decay"):
        influence(loss, x_test, ConjugateGradients(damping=0.0))
    with pytest.raises(ValueError, match=r"LiSSA diverged: raise scale=0.001"):
        influence(loss, x_test, Lissa(steps=300, scale=1e-3))
    options: dict[str, Any]
    for options in ({"damping": -1.0}, {"tolerance": 0.0}, {"max_iterations": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            ConjugateGradients(**options)
    for options in ({"steps": 0}, {"scale": 0.0}, {"damping": 1.0}, {"batch_size": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            Lissa(**options)
