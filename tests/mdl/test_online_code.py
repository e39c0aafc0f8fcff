"""The online code and the unit of the paper's code, on numbers worked out by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mdl.online_code import online_code_bits, published_units
from mdl.published_procedure import mean_bits
from mdl.settings import MdlSettings
from mdl.training_sizes import chunk_sizes, rounded_sizes


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
