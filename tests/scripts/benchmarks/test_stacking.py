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
