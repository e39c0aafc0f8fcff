"""Correlations and ranks of scores."""

import math

import pytest
import torch

from harness.result import as_json
from sample_info.agreement import agreement, auroc, median, pearson, spearman
from sample_info.leave_one_out_effects import Changes
from sample_info.result import Ratio

A = torch.tensor([1.0, 2.0, 3.0, 10.0], dtype=torch.float64)


def test_correlations() -> None:
    assert pearson(A, 3 * A + 1) == pytest.approx(1)
    assert pearson(A, A.square()) != pytest.approx(1)
    assert spearman(A, A.square()) == pytest.approx(1)
    assert spearman(A, -A) == pytest.approx(-1)
    assert pearson(A, torch.ones(4, dtype=torch.float64)) is None


def test_agreement_is_over_the_examples_that_a_reference_has() -> None:
    some = torch.tensor([1.0, math.nan, 3.0, 10.0], dtype=torch.float64)
    result = agreement(Changes(A, A), Changes(some, -some))
    assert result.examples == 3
    assert result.weight.pearson == pytest.approx(1)
    assert result.prediction.spearman == pytest.approx(-1)


def test_ratios_show_what_one_large_value_hides_from_a_correlation() -> None:
    theirs = torch.tensor([1.0, 2.0, 3.0, 1000.0, 0.0], dtype=torch.float64)
    ours = theirs * torch.tensor([0.6, 1.0, 1.3, 1.0, 1.0])
    result = agreement(Changes(ours, theirs), Changes(theirs, theirs))
    assert result.weight.pearson == pytest.approx(1, abs=1e-4)
    assert result.weight.ratio is not None
    assert as_json(result.weight.ratio) == pytest.approx({"median": 1.0, "least": 0.6, "largest": 1.3})
    assert result.prediction.ratio == Ratio(median=1, least=1, largest=1)
    assert agreement(Changes(ours, ours), Changes(0 * ours, 0 * ours)).weight.ratio is None


def test_the_median_of_an_even_number_of_values_lies_between_the_middle_two() -> None:
    ratio = agreement(Changes(A * A, A), Changes(A, A)).weight.ratio
    assert ratio is not None
    assert (median(A), median(A[:3]), ratio.median) == (2.5, 2, 2.5)


def test_auroc_is_the_probability_of_a_higher_score() -> None:
    positive = torch.tensor([False, True, False, True])
    assert auroc(A, positive) == pytest.approx(3 / 4)
    assert auroc(-A, positive) == pytest.approx(1 / 4)
    assert auroc(torch.ones(4), positive) == pytest.approx(1 / 2)
    assert auroc(A, torch.zeros(4, dtype=torch.bool)) is None
