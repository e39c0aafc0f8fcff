"""The linearisation along the trained path, and estimated errors of scores: that they fall on the right examples."""

import math
from dataclasses import replace
from typing import Literal

import pytest
import torch

from harness.sample_info_fields import ErrorEstimate
from models.classifier import Classifier
from models.mlp import MLP
from models.polynomial import PolynomialClassifier
from models.tangent.kernel import Kernels
from sample_info.error_estimates import EstimatedErrors, along_trained_path, differences_along
from sample_info.leave_one_out_effects import Changes
from sample_info.linearized.descent import LinearizedDescent
from sample_info.linearized.dynamics import LinearizedDynamics
from sample_info.linearized.network import LinearizedNetwork
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
    return TrainingProblem(model.double(), weights, x, draws(n, k, seed=3), held_out, descent, 0, 8, 1e9)


def methods(problem: TrainingProblem) -> tuple[Changes, Changes, Changes]:
    """At w_0, along the path, and by retraining."""
    network = LinearizedNetwork(problem, problem.kernels())
    truth = retrained(problem.training, problem.held_out)
    return network.all_left_out().changes, along_trained_path(network, TrainingProblem.kernels), truth


@pytest.fixture(scope="module")
def far() -> tuple[Changes, Changes, Changes]:
    """Methods of a network that leaves its linearisation."""
    return methods(problem_of(gelu_mlp(1), 1, n=40, rate=0.075, steps=600))


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("left_out_loss", ["sum", "mean"])
@pytest.mark.parametrize("decay", [0.0, 2.0])
def test_of_residuals_that_are_the_linearisation_s_own_it_is_the_closed_form(
    k: int, left_out_loss: Literal["sum", "mean"], decay: float
) -> None:
    n = 70  # more than one block
    kernel, _, residual = some_kernels(n, k)
    limit = 2 * n / float(torch.linalg.eigvalsh(kernel)[-1])
    descent = LinearizedDescent(learning_rate=0.3 * limit, steps=60, weight_decay=decay, left_out_loss=left_out_loss)
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


def test_where_the_network_leaves_its_linearisation_the_path_is_nearer_to_retraining(far) -> None:
    plain, path, truth = far
    for kind in ("weight", "prediction"):
        errors = [(getattr(one, kind) / getattr(truth, kind)).log().abs().median() for one in (plain, path)]
        assert errors[0] > 0.5
        assert errors[1] < 0.6 * errors[0]


def test_a_kernel_that_grows_past_what_is_stable_stays_finite_as_the_network_does() -> None:
    problem = problem_of(PolynomialClassifier((1, 4, 4), 1), 1, rate=0.1, steps=300)
    network = LinearizedNetwork(problem, problem.kernels())

    def grown(problem: TrainingProblem) -> Kernels:
        there = problem.kernels()
        return Kernels(1000 * there.train, 1000 * there.held_out, there.how)

    assert bool(along_trained_path(network, grown).weight.isfinite().all())


def test_a_network_that_diverges_says_so() -> None:
    problem = problem_of(gelu_mlp(3), 1, rate=50.0, steps=300)
    kernels = Kernels(torch.eye(20).double(), torch.zeros(9, 20).double(), "")  # under which nothing does
    with pytest.raises(ValueError, match="diverged"):
        along_trained_path(LinearizedNetwork(problem, kernels), TrainingProblem.kernels)


def double(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_a_factor_counts_both_ways_and_nothing_beside_something_is_not_believed() -> None:
    estimate = EstimatedErrors(double(1, 1, 4, 0, 0, 1, 2, 5, 5), double(1, 3, 2.1, 0, 1, 0, 1, 5, 5))
    more = EstimatedErrors(double(*[1] * 9), double(*[1] * 9))  # agreement is usual, so that there is no margin
    alone = EstimatedErrors(torch.cat([estimate.score, more.score]), torch.cat([estimate.along_path, more.along_path]))
    torch.testing.assert_close(alone.factor[:9], double(1, 3, 4 / 2.1, 1, math.inf, math.inf, 2, 1, 1))
    assert alone.believable[:9].tolist() == [True, False, True, True, False, False, False, True, True]
    assert alone.described == ErrorEstimate(believable=14)


def test_the_error_that_is_usual_counts_where_accounts_agree_by_chance_and_most_where_little_changes() -> None:
    estimate = EstimatedErrors(
        double(1e-6, 1e-2, 1, 1.1**2, 2**2), double(1e-6, 1e-2, 1.2**2, 1, 1.9**2)
    )  # median of √: 0.1
    torch.testing.assert_close(estimate.factor[:2], double((1 + 0.05 / 1e-3) ** 2, (1 + 0.05 / 0.1) ** 2))
    assert estimate.believable.tolist() == [False, False, True, True, True]


def test_verdicts_are_counted_on_the_examples_that_were_left_out() -> None:
    estimate = EstimatedErrors(double(1, 1, 1, 1, 1), double(1, 1.2, 5, 7, 1), double(1.05, 4, 1.5, 20, math.nan))
    counts = estimate.described
    assert counts.spearman == pytest.approx(0.8)
    expected = ErrorEstimate(believable=3, retrained=4, believed=2, rightly_believed=1, rightly_doubted=1)
    assert replace(counts, spearman=None) == expected


def test_of_a_network_far_from_its_linearisation_the_wrong_scores_are_doubted(far) -> None:
    for kind in ("weight", "prediction"):
        counts = EstimatedErrors(*(getattr(one, kind) for one in far)).described
        assert counts.spearman is not None
        assert counts.spearman > 0.6
        assert counts.believed is not None
        assert counts.rightly_doubted is not None
        assert counts.rightly_doubted > 0.5 * (40 - counts.believed) > 5
        assert counts.rightly_believed is not None
        assert counts.rightly_believed > 0.7 * counts.believed > 3
