"""The measurement behind the rules of train.stack and of threads."""

import functools

import pytest
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


def test_chosen_networks_are_timed_on_several_threads_too(monkeypatch, capsys) -> None:
    monkeypatch.setattr(stacking, "threads_table", functools.partial(stacking.threads_table, turns=1, turn_s=0))
    assert stacking.main(["--threads", "2", "--networks", "linear"]) == 0
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines() if " × " in line]
    assert rows == ["linear"] * 3
    with pytest.raises(SystemExit, match="2"):
        stacking.main(["--busy", "2"])
    assert "--busy=2: goes with --threads=2 or more" in capsys.readouterr().err
