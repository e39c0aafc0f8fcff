"""Work in threads: results in order, the first error is the one that is told, and it ends the others."""

import threading
from collections.abc import Iterator

import pytest
import torch

from train.threads import in_threads


@pytest.fixture
def seven_cores() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(7)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("seven_cores")
def test_results_come_in_order_and_cores_are_shared() -> None:
    together = threading.Barrier(3)

    def work(i: int, _) -> tuple[int, int]:
        together.wait(30)
        return i, torch.get_num_threads()

    assert in_threads(work, 3) == [(i, 2) for i in range(3)]
    assert torch.get_num_threads() == 7


def test_the_first_error_ends_the_others() -> None:
    ended: list[int] = []

    def work(i: int, check) -> None:
        if i == 2:
            raise ValueError("seed 2 diverged")
        try:
            while True:
                check()
        finally:
            ended.append(i)

    with pytest.raises(ValueError, match="seed 2 diverged"):
        in_threads(work, 4)
    assert sorted(ended) == [0, 1, 3]
