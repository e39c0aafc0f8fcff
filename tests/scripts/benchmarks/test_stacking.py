"""The measurement behind the rules of train.stack and of threads."""

import torch

from scripts.benchmarks import stacking


def test_both_arrangements_are_timed_beside_the_choice_of_the_rule() -> None:
    table = stacking.stacking_table(2, ["linear", "lenet"], repeats=1)
    assert [row[2] for row in table.rows] == ["650", "7,690", "30,730", "101,507", "931,335", "3,855,504"]
    assert [row[-1] for row in table.rows] == ["in one network"] * 4 + ["one after another"] * 2


def test_one_thread_and_several_are_timed_beside_the_choice_of_the_rule() -> None:
    before = torch.get_num_threads()
    table = stacking.threads_table(5, 2, ["linear"], turns=1, turn_s=0)
    assert [row[2] for row in table.rows] == ["0", "2", "10"]  # five seeds stacked
    assert {row[-1] for row in table.rows} == {"1"}
    assert torch.get_num_threads() == before
