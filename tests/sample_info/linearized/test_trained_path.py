"""The linearisation along the trained path: the closed form and retraining where these hold."""

import pytest
import torch

from models.classifier import Classifier
from models.mlp import MLP
from models.polynomial import PolynomialClassifier
from models.tangent.kernel import Kernels
from sample_info.leave_one_out_effects import Changes
from sample_info.linearized.descent import LinearizedDescent
from sample_info.linearized.dynamics import LinearizedDynamics
from sample_info.linearized.network import LinearizedNetwork
from sample_info.linearized.trained_path import along_trained_path, differences_along
from sample_info.training_problem import TrainingProblem
from tests.sample_info.networks import away_from_zero, some_kernels
from tests.sample_info.problems import draws, retrained


def gelu_mlp(depth: int) -> MLP:
    return MLP((1, 4, 4), 1, width=64, depth=depth, activation="gelu", parametrization="standard")


def problem_of(
    model: Classifier, k: int, n: int = 20, *, rate: float, steps: int, decay: float = 0.0
) -> TrainingProblem:
    """Noise images, in float64 throughout."""
    descent = LinearizedDescent(learning_rate=rate, steps=steps, weight_decay=decay)
    weights = {name: weight.double() for name, weight in away_from_zero(model).items()}
    x, held_out = draws(n, 1, 4, 4, seed=1), draws(9, 1, 4, 4, seed=2)
    return TrainingProblem(model.double(), weights, x, draws(n, k, seed=3), held_out, descent, 0, 1e9)


def methods(problem: TrainingProblem) -> tuple[Changes, Changes, Changes]:
    """At w_0, along the path, and by retraining."""
    network = LinearizedNetwork(problem, problem.kernels())
    truth = retrained(problem.training, problem.held_out)
    return network.all_left_out().changes, along_trained_path(network), truth


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("decay", [0.0, 2.0])
def test_of_residuals_that_are_the_linearisation_s_own_it_is_the_closed_form(k: int, decay: float) -> None:
    n = 70  # more than one block
    kernel, _, residual = some_kernels(n, k)
    limit = 2 * n / float(torch.linalg.eigvalsh(kernel)[-1])
    descent = LinearizedDescent(learning_rate=0.3 * limit, steps=60, weight_decay=decay)
    dynamics, path = LinearizedDynamics(kernel, residual, descent), [residual]
    a, rate = torch.zeros(n * k, dtype=torch.float64), descent.learning_rate / n
    for _ in range(59):
        a = a - rate * (path[-1].flatten() + decay * a)
        path.append(residual + (kernel @ a).view(n, k))
    result = differences_along(kernel, torch.stack(path), descent)
    expected = dynamics.differences(torch.arange(n))
    torch.testing.assert_close(result, expected, rtol=1e-8, atol=1e-10 * float(expected.abs().max()))


@pytest.mark.parametrize("k", [1, 3])
def test_of_a_linear_network_both_are_equal_and_are_retraining(k: int) -> None:
    problem = problem_of(PolynomialClassifier((1, 4, 4), k), k, rate=0.1, steps=300, decay=0.5)
    plain, *others = methods(problem)
    for one in others:
        torch.testing.assert_close(one.weight, plain.weight, rtol=1e-8, atol=0)
        torch.testing.assert_close(one.prediction, plain.prediction, rtol=1e-8, atol=0)


def test_a_kernel_that_grows_past_what_is_stable_stays_finite_as_the_network_does() -> None:
    problem = problem_of(PolynomialClassifier((1, 4, 4), 1), 1, rate=0.1, steps=300)

    class Growing(TrainingProblem):
        def kernels(self) -> Kernels:
            there = super().kernels()
            return Kernels(1000 * there.train, 1000 * there.held_out, there.how)

    network = LinearizedNetwork(Growing(**vars(problem)), problem.kernels())
    assert bool(along_trained_path(network).weight.isfinite().all())


def test_a_network_that_diverges_says_so() -> None:
    problem = problem_of(gelu_mlp(3), 1, rate=50.0, steps=300)
    kernels = Kernels(torch.eye(20).double(), torch.zeros(9, 20).double(), "")  # under which nothing does
    with pytest.raises(ValueError, match="diverged"):
        along_trained_path(LinearizedNetwork(problem, kernels))
