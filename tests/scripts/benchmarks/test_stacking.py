"""The measurement behind the rule of train.stack."""

import pytest
import torch

from scripts.benchmarks import stacking


def test_both_arrangements_are_timed_beside_the_choice_of_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacking, "_ROUNDS", 1)
    table = stacking.stacking_table(2, torch.device("cpu"), ["linear", "lenet"])
    assert [row[2] for row in table.rows] == ["650", "7,690", "30,730", "101,507", "931,335", "3,855,504"]
    assert [row[-1] for row in table.rows] == ["in one network"] * 4 + ["one after another"] * 2
    for *_, stacked, single, ratio, _ in table.rows:
        assert 0 < float(stacked) < 1e5
        assert float(single) > 0
        assert float(ratio) > 0


def test_one_thread_and_several_are_timed_beside_the_choice_of_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacking, "_TURN_SECONDS", 0)
    before = torch.get_num_threads()
    with stacking.endless_loops(1):
        table = stacking.threads_table(5, 2, ["linear", "lenet"])
    assert [row[2] for row in table.rows] == ["0", "2", "10", "32", "60", "247"]  # five seeds, or one from 16 × 16 on
    assert {row[-1] for row in table.rows} == {"1"}
    for _, _, _, one, several, ratio, _ in table.rows:
        assert min(map(float, (one, several, ratio))) > 0
    assert torch.get_num_threads() == before
