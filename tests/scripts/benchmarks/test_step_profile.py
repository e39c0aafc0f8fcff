"""The operations of a step, counted and timed."""

import torch

from scripts.benchmarks.step_profile import profile_table


def test_the_operations_of_a_step_are_counted_and_the_longest_is_first() -> None:
    large, small = torch.randn(300, 300), torch.randn(3)

    def step() -> None:
        for _ in range(3):
            large.mm(large)
        small.exp()

    table = profile_table(step, torch.device("cpu"), "A step")
    times = {row[0]: row[1] for row in table.rows}
    assert (times["aten::mm"], times["aten::exp"]) == ("3", "1")
    assert table.rows[0][0] == "aten::mm"
    assert int(table.rows[0][3].rstrip("%")) > 50
