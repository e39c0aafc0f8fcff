"""Work in threads: results in order, the first error is the one that is told, and it ends the others."""

import threading

import pytest
import torch

from train.threads import in_threads


def test_results_come_in_order_and_cores_are_shared() -> None:
    before = torch.get_num_threads()
    together = threading.Barrier(3)

    def work(i: int, _) -> tuple[int, int]:
        together.wait(30)
        return i, torch.get_num_threads()

    assert in_threads(work, 3) == [(i, max(1, before // 3)) for i in range(3)]
    assert torch.get_num_threads() == before


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
