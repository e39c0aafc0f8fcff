"""Codelengths in bits, and the paper's own unit."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdl.chunks import ChunkSettings, chunk_sizes
from mdl.codelength import online_code_bits, paper_units


@given(total=st.integers(100, 10**5), k=st.integers(2, 100), num_chunks=st.integers(2, 10))
def test_a_model_at_chance_costs_exactly_the_uniform_code(total: int, k: int, num_chunks: int) -> None:
    sizes = chunk_sizes(total, ChunkSettings(num_chunks=num_chunks, min_chunk=None, order="smallest_first"))
    bits = online_code_bits(sizes, [math.log2(k)] * (num_chunks - 1), k)
    assert bits / total == pytest.approx(math.log2(k), rel=1e-13)


def test_the_online_code_by_hand() -> None:
    assert online_code_bits([10, 30, 100], [2.0, 0.5], 4) == 10 * 2 + 20 * 2.0 + 70 * 0.5


def test_the_papers_unit_at_chance_is_table_16s_entry() -> None:
    sizes = chunk_sizes(50_000, ChunkSettings(num_chunks=10, min_chunk=1024, order="smallest_first"))
    assert paper_units(sizes, [math.log2(10)] * 10, 50_000) == pytest.approx(11.39, abs=0.005)
    assert paper_units([10, 30], [2.0, 1.0], 30) == pytest.approx(50 / 30)


def test_one_loss_per_size_is_required() -> None:
    with pytest.raises(ValueError, match="zip"):
        online_code_bits([10, 30], [1.0, 2.0], 4)
    with pytest.raises(ValueError, match="zip"):
        paper_units([10, 30], [1.0], 30)
