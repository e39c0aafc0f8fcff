"""Leave-one-out retraining: equal to deleting the example, to training one after another, and to closed forms."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from sample_info.gradient_descent import GradientDescent
from tests.models.every_model import EVERY
from tests.sample_info.problems import draws, linear_problem, mlp_problem, retrained

EXACT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}  # float64, a few dozen steps


def one_after_another(descent: GradientDescent, x_test: Tensor) -> tuple[Tensor, Tensor]:
    """Train as a researcher would write it: one training at a time on the examples that are left, with torch.optim."""

    def train(remaining: list[int]) -> tuple[Tensor, Tensor]:
        weights = {name: weight.clone().requires_grad_() for name, weight in descent.initial.items()}
        optimizer = torch.optim.SGD(weights.values(), lr=descent.learning_rate)
        for _ in range(descent.steps):
            optimizer.zero_grad()
            loss = 0.5 * (descent.network(weights, descent.x[remaining]) - descent.y[remaining]).square().sum()
            loss += descent.weight_decay / 2 * sum((w - descent.initial[n]).square().sum() for n, w in weights.items())
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            return torch.cat([w.flatten() for w in weights.values()]), descent.network(weights, x_test)

    n = len(descent.x)
    weights, outputs = train(list(range(n)))
    changes = [train([j for j in range(n) if j != i]) for i in range(n)]
    return (
        torch.stack([(w - weights).square().sum() for w, _ in changes]),
        torch.stack([(f - outputs).square().sum(1).mean() for _, f in changes]),
    )


@pytest.mark.parametrize(("depth", "k", "weight_decay"), [(1, 1, 0.0), (1, 3, 0.3), (2, 1, 0.3)])
def test_it_equals_one_training_after_another(depth: int, k: int, weight_decay: float) -> None:
    descent, x_test = mlp_problem(n=9, depth=depth, k=k, weight_decay=weight_decay)
    result = retrained(descent, x_test)
    weight_change, prediction_change = one_after_another(descent, x_test)
    torch.testing.assert_close(result.weight, weight_change, **EXACT)
    torch.testing.assert_close(result.prediction, prediction_change, **EXACT)
    assert weight_change.min() > 1e-6  # there was something to find


def test_results_do_not_depend_on_how_many_are_trained_at_once() -> None:
    descent, x_test = mlp_problem()
    one = descent.bytes_per_member()
    assert [descent.members_at_once(m * one) for m in (1, 3, 7)] == [1, 3, 7]
    expected = retrained(descent, x_test)
    for members in (1, 3, 7):
        result = retrained(descent, x_test, memory_bytes=members * one)
        torch.testing.assert_close(result.weight, expected.weight, **EXACT)
        torch.testing.assert_close(result.prediction, expected.prediction, **EXACT)


def test_a_network_that_takes_no_stack_is_vectorised() -> None:
    descent, x_test = mlp_problem()
    expected = retrained(descent, x_test)
    result = retrained(dataclasses.replace(descent, stackable=False), x_test)
    torch.testing.assert_close(result.weight, expected.weight, **EXACT)


def test_a_linear_model_arrives_at_the_closed_form() -> None:
    descent = linear_problem(k=2)
    x_test = draws(5, 4, seed=9)
    result = retrained(descent, x_test)
    initial = torch.cat([descent.initial["W"], descent.initial["b"][:, None]], dim=1)
    x, at_test = (torch.cat([x, torch.ones(len(x), 1)], dim=1) for x in (descent.x, x_test))

    def ridge(c: Tensor) -> Tensor:
        curvature = (x.T * c) @ x + descent.weight_decay * torch.eye(5)
        return initial + torch.linalg.solve(curvature, (x.T * c) @ (descent.y - x @ initial.T)).T

    everything = ridge(torch.ones(12, dtype=torch.float64))
    for i in range(12):
        c = torch.ones(12, dtype=torch.float64)
        c[i] = 0
        change = ridge(c) - everything
        assert result.weight[i].item() == pytest.approx(change.square().sum().item(), rel=1e-8)
        predicted = (at_test @ change.T).square().sum(1).mean().item()
        assert result.prediction[i].item() == pytest.approx(predicted, rel=1e-8)


def test_single_precision_finds_small_changes() -> None:
    descent, x_test = mlp_problem()
    single = dataclasses.replace(
        descent,
        initial={name: weight.float() for name, weight in descent.initial.items()},
        x=descent.x.float(),
        y=descent.y.float(),
    )
    expected, result = retrained(descent, x_test), retrained(single, x_test.float())
    torch.testing.assert_close(result.weight, expected.weight, rtol=1e-3, atol=0)


def test_what_cannot_work_is_refused() -> None:
    descent, x_test = mlp_problem()
    with pytest.raises(ValueError, match=r"diverged within 1500 steps: lower the learning rate, 10 of"):
        retrained(dataclasses.replace(descent, learning_rate=10.0, steps=1500), x_test)
    with pytest.raises(ValueError, match=r"memory_bytes=10: one training needs [\d,]+; allow more"):
        retrained(descent, x_test, memory_bytes=10)
    with pytest.raises(AssertionError, match="examples that there are"):
        retrained(descent, x_test, torch.tensor([0, 20]))


def test_a_network_of_timm_is_retrained() -> None:
    x, y = draws(5, 3, 32, 32, seed=0).float(), draws(5, 10, seed=1).float()
    model = EVERY["timm"]((3, 32, 32))
    initial = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    descent = GradientDescent.of(model, initial, x, y, steps=2, learning_rate=1e-3)
    result = retrained(descent, x, torch.tensor([3]))
    expected, _ = one_after_another(descent, x)
    torch.testing.assert_close(result.weight[3], expected[3].double(), rtol=1e-2, atol=0)
