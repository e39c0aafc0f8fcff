"""The number of torch's threads: by the size of a computation, no more than are allowed, restored afterwards."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from erasure.threads import MULTIPLY_ADDS_PER_THREAD, threads_for

LARGE = 1e15


@pytest.fixture(autouse=True)
def four_allowed() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("units", "threads"), [(0, 1), (0.1, 1), (1.9, 1), (2, 2), (3.5, 3), (4, 4), (1e9, 4)])
def test_a_unit_of_work_takes_a_thread_up_to_those_allowed(units: float, threads: int) -> None:
    with threads_for(units * MULTIPLY_ADDS_PER_THREAD):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 4


def test_a_block_within_a_block_has_its_own_number() -> None:
    with threads_for(0):
        with threads_for(LARGE):
            assert torch.get_num_threads() == 4
        assert torch.get_num_threads() == 1
        torch.set_num_threads(2)  # somebody else's, in the block
    assert torch.get_num_threads() == 4
    torch.set_num_threads(3)
    with threads_for(LARGE):
        assert torch.get_num_threads() == 3


def test_an_error_restores_the_number() -> None:
    with pytest.raises(ZeroDivisionError), threads_for(0):
        _ = 1 / 0
    assert torch.get_num_threads() == 4
    with threads_for(LARGE):
        assert torch.get_num_threads() == 4


def test_another_python_thread_is_left_alone() -> None:
    def large() -> int:
        torch.set_num_threads(2)
        with threads_for(LARGE):
            return torch.get_num_threads()

    with ThreadPoolExecutor(1) as other, threads_for(0):
        assert other.submit(large).result() == 2
        assert torch.get_num_threads() == 1
