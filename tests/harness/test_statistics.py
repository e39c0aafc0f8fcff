"""Paired differences, p-values corrected together, errors and spreads, on numbers worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.statistics import (
    LEVEL,
    Difference,
    Spread,
    bootstrap_error,
    deviation_over,
    holm,
    paired_difference,
    seeds_text,
)


def test_equal_differences_are_not_tested() -> None:
    copies = paired_difference([0.3, 0.3, 0.3], [0.1, 0.1, 0.1])  # of one computation, which the seeds do not change
    assert math.isnan(copies.p_value)
    assert not copies.significant
    rounded = paired_difference([0.3, 1.3], [0.1, 1.1])
    assert rounded.standard_error == pytest.approx(0, abs=1e-15)
    assert rounded.standard_error
    assert math.isnan(rounded.p_value)
    assert paired_difference([2.0, 3.0], [2.0, 3.0]).p_value == 1


def test_holm_keeps_one_false_star_in_a_whole_table_as_rare() -> None:
    draws = np.random.default_rng(1).standard_normal((1000, 12, 2, 5)).tolist()
    tables = [{i: paired_difference(*pair) for i, pair in enumerate(table)} for table in draws]
    uncorrected = sum(any(d.significant for d in table.values()) for table in tables) / len(tables)
    corrected = sum(any(d.significant for d in holm(table).values()) for table in tables) / len(tables)
    assert uncorrected > 0.35
    assert corrected < 0.07


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_is_the_step_down_procedure(p_values: list[float]) -> None:
    """Reject the smallest while p <= level / (those left), and stop at the first that is not rejected."""
    corrected = holm({i: Difference(1.0, 1.0, p) for i, p in enumerate(p_values)})
    rejected, left = set(), len(p_values)
    for i in sorted(range(len(p_values)), key=p_values.__getitem__):
        if left * p_values[i] > LEVEL:
            break
        rejected.add(i)
        left -= 1
    assert {i for i, difference in corrected.items() if difference.significant} == rejected


def test_the_error_over_test_examples_is_the_bootstraps() -> None:
    draw = np.random.default_rng(2)
    control = draw.exponential(1.0, (3, 400))
    erased = control + draw.normal(0.2, 0.5, 400) + draw.normal(0, 0.1, (3, 400))
    samples = draw.integers(0, 400, (4000, 400))  # of examples, with all their seeds, in pairs
    resampled = (erased - control)[:, samples].mean((0, 2))
    assert bootstrap_error(erased, control) == pytest.approx(resampled.std(), rel=0.04)
    apart = np.hypot(*(losses.mean(0).std() / 20 for losses in (erased, control)))
    assert bootstrap_error(erased, control) < 0.6 * apart  # pairs are what makes it small


def test_what_rounds_to_zero_has_no_sign() -> None:
    assert f"{paired_difference([1.0], [1.0004])}" == "0.000 (one seed)"
    assert f"{Difference(-0.0004, 0.001, 1.0)}" == "0.000 ± 0.001"
    assert f"{Spread(-0.0004, 0.0)}" == "0.000 ± 0.000"
    assert f"{Spread(-0.4, None):,.0f}" == "0"


def test_a_difference_shows_both_errors() -> None:
    assert f"{Difference(-0.5, 0.01, 0.001, 0.02)}" == "-0.500 ± 0.010 ± 0.020 *"
    assert f"{Difference(0.5, 0.01, 0.2)}" == "+0.500 ± 0.010"
    assert f"{paired_difference([2.0], [1.0])}" == "+1.000 (one seed)"
    assert f"{paired_difference([2.0], [1.0], 0.25)}" == "+1.000 (one seed; ± 0.250 over test examples)"


def test_below_the_control_is_significant_and_negative() -> None:
    below = [Difference(mean, 0.01, p).below for mean in (-0.5, 0.5) for p in (0.001, 0.05, 0.051)]
    assert below == [True, True, False, False, False, False]


def test_counts_of_seeds_are_said() -> None:
    assert [seeds_text(1), seeds_text(2)] == ["one seed", "2 seeds"]
    said = [deviation_over(counts) for counts in ([0, 1], [2, 1], [5, 3, 5])]
    assert said == [[], *([f"±: standard deviation over {counts} seeds."] for counts in ("2", "3 or 5"))]


def test_spread() -> None:
    assert Spread.of([1.0, 3.0]) == Spread(2.0, 2**0.5)
    assert Spread.of([1.0]) == Spread(1.0, None)
    assert f"{Spread.of([1.0, 3.0])}" == "2.000 ± 1.414"
    assert f"{Spread.of([1.0, 3.0]):.1f}" == "2.0 ± 1.4"
    assert f"{Spread.of([1.0]):.2f}" == "1.00"
