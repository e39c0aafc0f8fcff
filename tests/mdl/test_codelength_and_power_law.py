"""The online code, the unit of the paper's code and power laws, on numbers worked out by hand."""

import math
from statistics import pvariance

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mdl.codelength_and_power_law import fit_power_law, online_code_bits
from mdl.published_procedure import mean_bits
from mdl.result import published_units
from mdl.settings import MdlSettings
from mdl.training_sizes import chunk_sizes, rounded_sizes

SIZES = [27, 64, 109, 170, 253, 363, 507, 700, 953]


@given(total=st.integers(100, 10**5), k=st.integers(2, 100), num_chunks=st.integers(2, 10))
def test_a_model_at_chance_costs_exactly_the_uniform_code(total: int, k: int, num_chunks: int) -> None:
    sizes = chunk_sizes(total, MdlSettings(num_chunks=num_chunks, min_chunk=None, order="smallest_first"))
    bits = online_code_bits(sizes, [math.log2(k)] * (num_chunks - 1), k)
    assert bits / total == pytest.approx(math.log2(k), rel=1e-13)


def test_the_online_code_by_hand() -> None:
    assert online_code_bits([10, 30, 100], [2.0, 0.5], 4) == 10 * 2 + 20 * 2.0 + 70 * 0.5


def test_the_papers_unit_at_chance_is_table_16s_entry() -> None:
    sizes = rounded_sizes(47_952, MdlSettings(num_chunks=10, min_chunk=1024))
    assert sizes == [1024, 2375, 4157, 6507, 9606, 13694, 19086, 26198, 35579, 47952]
    assert published_units(sizes, [math.log2(10)] * 9) == pytest.approx(11.441, abs=5e-4)
    untrained = float(mean_bits(torch.zeros(128, 10, dtype=torch.bfloat16).log_softmax(1), torch.arange(128) % 10))
    assert published_units(sizes, [untrained] * 9) == pytest.approx(11.409, abs=5e-4)
    assert published_units([10, 30, 60], [2.0, 1.0]) == pytest.approx((30 * 2 + 60) / 60)


def test_one_loss_per_size_is_required() -> None:
    with pytest.raises(ValueError, match="zip"):
        online_code_bits([10, 30], [1.0, 2.0], 4)
    with pytest.raises(ValueError, match="zip"):
        published_units([10, 30], [1.0, 2.0])


@given(a=st.floats(1, 50), b=st.floats(0.2, 1.5), c=st.floats(0.0, 2.0))
def test_a_power_law_is_recovered(a: float, b: float, c: float) -> None:
    fitted = fit_power_law(SIZES, [a * n**-b + c for n in SIZES])
    assert fitted is not None
    assert fitted["r2"] > 0.9999
    predicted = [fitted["a"] * n ** -fitted["b"] + fitted["c"] for n in SIZES]
    assert predicted == pytest.approx([a * n**-b + c for n in SIZES], rel=0.01, abs=0.01)


@pytest.mark.parametrize(
    "losses", [[3.3] * 9, [1, 2, 3, 3, 3, 3, 3, 3, 3.5], [3, 1, 3, 1, 3, 1, 3, 1, 2.9]], ids=["flat", "rising", "noise"]
)
def test_curves_that_are_none_get_none(losses: list[float]) -> None:
    assert fit_power_law(SIZES, losses) is None


def test_too_few_points_get_none() -> None:
    assert fit_power_law(SIZES[:3], [3.0, 2.0, 1.5]) is None


def test_a_law_that_explains_less_than_nine_tenths_is_none() -> None:
    """Ever more noise on a power law: fits are returned down to 90 % of the variance, and no further."""
    shares = []
    for i in range(200):
        losses = [10 * n**-0.5 + 0.5 + (0.005 * i) * (-1) ** j for j, n in enumerate(SIZES)]
        fitted = fit_power_law(SIZES, losses)
        shares.append(fitted["r2"] if fitted else None)
    known = [share for share in shares if share is not None]
    assert 0.9 <= min(known) < 0.92
    assert shares[-1] is None


def test_four_points_are_enough_and_a_curve_that_comes_back_is_none() -> None:
    assert fit_power_law(SIZES[:4], [10 * n**-0.5 for n in SIZES[:4]]) is not None
    assert fit_power_law(SIZES[:4], [3.0, 2.0, 2.0, 3.0]) is None


def test_the_share_explained_is_that_of_the_variance() -> None:
    losses = [100 * n**-0.5 + 5 + 0.5 * (-1) ** j for j, n in enumerate(SIZES)]
    fitted = fit_power_law(SIZES, losses)
    assert fitted is not None
    missed = [fitted["a"] * n ** -fitted["b"] + fitted["c"] - bits for n, bits in zip(SIZES, losses, strict=True)]
    assert 0.9 < fitted["r2"] < 0.9999
    assert fitted["r2"] == pytest.approx(1 - pvariance(missed, 0) / pvariance(losses), rel=1e-6)
