"""Estimated errors of scores: what they are, and that they fall on the right examples."""

import math
from dataclasses import replace

import pytest
import torch

from harness.information import ErrorEstimate
from models.mlp import MLP
from sample_info.trust import Trust
from tests.sample_info.linearized.test_path import both, problem_of, retrained


def double(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_a_factor_counts_both_ways_and_nothing_beside_something_is_not_believed() -> None:
    trust = Trust(double(1, 1, 4, 0, 0, 1, 2, 5, 5), double(1, 3, 2.1, 0, 1, 0, 1, 5, 5))
    more = Trust(double(*[1] * 9), double(*[1] * 9))  # agreement is usual, so that there is no margin
    alone = Trust(torch.cat([trust.score, more.score]), torch.cat([trust.along_path, more.along_path]))
    torch.testing.assert_close(alone.factor[:9], double(1, 3, 4 / 2.1, 1, math.inf, math.inf, 2, 1, 1))
    assert alone.believable[:9].tolist() == [True, False, True, True, False, False, False, True, True]
    assert alone.described == ErrorEstimate(believable=14)


def test_the_error_that_is_usual_counts_where_accounts_agree_by_chance_and_most_where_little_changes() -> None:
    trust = Trust(double(1e-6, 1e-2, 1, 1.1**2, 2**2), double(1e-6, 1e-2, 1.2**2, 1, 1.9**2))  # median of √: 0.1
    torch.testing.assert_close(trust.factor[:2], double((1 + 0.05 / 1e-3) ** 2, (1 + 0.05 / 0.1) ** 2))
    assert trust.believable.tolist() == [False, False, True, True, True]


def test_verdicts_are_counted_on_the_examples_that_were_left_out() -> None:
    trust = Trust(double(1, 1, 1, 1, 1), double(1, 1.2, 5, 7, 1), double(1.05, 4, 1.5, 20, math.nan))
    found = trust.described
    assert found.spearman == pytest.approx(0.8)
    expected = ErrorEstimate(believable=3, retrained=4, believed=2, rightly_believed=1, rightly_doubted=1)
    assert replace(found, spearman=None) == expected


def test_of_a_network_far_from_its_linearisation_the_wrong_scores_are_doubted() -> None:
    model = MLP((1, 4, 4), 1, width=64, depth=1, activation="gelu", parametrization="standard")
    problem = problem_of(model, 1, n=40, rate=0.05, steps=1000)
    plain, path = both(problem)
    truth = retrained(problem)
    for kind in ("weight", "prediction"):
        found = Trust(*(getattr(one, kind) for one in (plain, path, truth))).described
        assert found.spearman is not None
        assert found.spearman > 0.6
        assert found.believed is not None
        assert found.rightly_doubted is not None
        assert found.rightly_doubted > 0.5 * (40 - found.believed) > 5
        assert found.rightly_believed is not None
        assert found.rightly_believed > 0.7 * found.believed > 3
