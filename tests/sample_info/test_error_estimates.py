"""Estimated errors of scores: that they fall on the right examples."""

import math
from dataclasses import replace

import pytest
import torch

from sample_info.error_estimates import EstimatedErrors
from sample_info.leave_one_out_effects import Changes
from sample_info.result import ErrorEstimate
from tests.sample_info.linearized.test_trained_path import gelu_mlp, methods, problem_of


@pytest.fixture(scope="module")
def far() -> tuple[Changes, Changes, Changes]:
    """Methods of a network that leaves its linearisation."""
    return methods(problem_of(gelu_mlp(1), 1, n=40, rate=0.075, steps=600))


def test_where_the_network_leaves_its_linearisation_the_path_is_nearer_to_retraining(far) -> None:
    plain, path, truth = far
    for kind in ("weight", "prediction"):
        errors = [(getattr(one, kind) / getattr(truth, kind)).log().abs().median() for one in (plain, path)]
        assert errors[0] > 0.5
        assert errors[1] < 0.6 * errors[0]


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
