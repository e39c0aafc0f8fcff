"""Chunk sizes: they sum, they grow, they start where they should."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mdl.__main__ import COMMAND
from mdl.settings import MdlSettings
from mdl.training_sizes import chunk_sizes, few_labels, rounded_sizes


def sizes(total: int, num_chunks: int, min_chunk: int | None) -> list[int]:
    return chunk_sizes(total, MdlSettings(num_chunks=num_chunks, min_chunk=min_chunk, order="smallest_first"))


@given(total=st.integers(1, 10**6), num_chunks=st.integers(2, 40), min_chunk=st.integers(1, 2000))
def test_parts_sum_to_the_dataset_and_never_shrink(total: int, num_chunks: int, min_chunk: int) -> None:
    assume(num_chunks * min_chunk <= total)
    made = sizes(total, num_chunks, min_chunk)
    parts = [after - before for before, after in itertools.pairwise([0, *made])]
    assert len(made) == num_chunks
    assert made[-1] == sum(parts) == total
    assert parts[0] == min_chunk
    assert all(a <= b for a, b in itertools.pairwise(parts))
    # geometric up to rounding: part i is within one of first * ratio^i, the last takes what is left
    ratio = (parts[-2] / parts[0]) ** (1 / (num_chunks - 2)) if num_chunks > 2 else None
    if ratio is not None:
        for i, part in enumerate(parts[:-1]):
            slack = 1 + 2 * i * part / max(1, parts[-2])
            assert abs(part - parts[0] * ratio**i) <= slack


def test_sizes_that_do_not_fit_say_which_would() -> None:
    with pytest.raises(
        ValueError,
        match="mdl.num_chunks=500 .* need 13,500 .* there are 1,295: .* at most 47 or set mdl.min_chunk to at most 2$",
    ):
        sizes(1295, 500, None)
    with pytest.raises(ValueError, match="there are 5: set mdl.min_chunk to at most 2$"):
        sizes(5, 2, 5)
    with pytest.raises(ValueError, match="there are 3: set both mdl.num_chunks=2 and mdl.min_chunk=1$"):
        sizes(3, 10, None)
    sizes(3, 2, 1)
    sizes(1295, 47, None)
    sizes(1295, 500, 2)


@pytest.mark.parametrize("option", ["num_chunks=1", "num_chunks=0", "num_chunks=-3", "min_chunk=0"])
def test_no_code_of_one_chunk_is_begun(command, tmp_path, option: str) -> None:
    """One chunk trained, printed log2 k and crashed; none was refused only once the data was loaded."""
    outcome = command(COMMAND, f"mdl.{option}")
    assert outcome.code == 2
    assert f"mdl.{option}: must be at least" in outcome.err
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "cache").exists()


def test_limits_themselves_are_allowed() -> None:
    assert sizes(100, 10, 10) == list(range(10, 101, 10))
    assert sizes(100, 2, 50) == [50, 100]
    assert sizes(46, 2, None) == [10, 46]
    assert sizes(3, 3, 1) == [1, 2, 3]
    for bad in ((99, 10, 10), (100, 2, 51)):
        with pytest.raises(ValueError, match="training examples, but there are"):
            sizes(*bad)


def test_the_first_size_is_a_47th_up_to_the_papers() -> None:
    totals = (470, 517, 47 * 1024 - 1, 47 * 1024, 10**6)
    assert [sizes(total, 2, None)[0] for total in totals] == [10, 11, 1023, 1024, 1024]


def test_by_default_no_network_is_trained_on_fewer_than_ten_examples_or_one_per_class() -> None:
    assert sizes(130, 3, None) == [10, 40, 130]
    settings = MdlSettings(num_chunks=3, min_chunk=None)
    assert [chunk_sizes(400, settings, k)[0] for k in (2, 10, 37)] == [10, 10, 37]
    assert rounded_sizes(400, settings, 37)[0] == 37
    assert chunk_sizes(400, replace(settings, min_chunk=2), 37)[0] == 2  # as asked for
    with pytest.raises(
        ValueError, match="at least min_chunk=10 .* 46: set mdl.num_chunks to at most 4 or set mdl.min_"
    ):
        sizes(46, 10, None)


@pytest.mark.parametrize(
    ("sizes", "num_classes", "few"),
    [
        ([27, 100, 1295], 10, False),  # the digits
        ([10, 40, 470], 3, False),
        ([10, 40, 469], 3, True),
        ([9, 40, 1295], 3, True),
        ([27, 100, 1295], 28, True),
    ],
)
def test_a_first_network_of_few_examples_and_few_labels_are_named(
    sizes: list[int], num_classes: int, few: bool
) -> None:
    said = few_labels(sizes, num_classes)
    assert (said is not None) is few
    if said:
        assert f"learns from {sizes[0]} examples of {num_classes} classes" in said
        assert f"codes the next {sizes[1] - sizes[0]} of {sizes[2]:,} labels" in said
