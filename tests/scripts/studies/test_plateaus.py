"""Plateaus and waits of finished runs, in optimiser steps."""

from mdl.__main__ import COMMAND as MDL
from scripts.studies.plateaus import longest_wait, main
from train.__main__ import COMMAND as TRAIN

TINY = ["train=quick", "train.max_epochs=3", "train.stack=all", "seeds=[0,1]", "logger.mode=disabled", "model=linear"]


def test_the_longest_wait_is_that_between_two_improvements() -> None:
    losses = [3.0, 3.0, 2.5, 2.495, 2.6, 2.6, 2.4, 2.9, 2.9, 2.9, 2.9, 2.9]
    assert longest_wait([*enumerate(losses)], worth_bits=0.01) == 4  # epochs 2 to 6; what comes after 6 is no wait
    assert longest_wait([*enumerate(losses)], worth_bits=0.5) == 3  # 0 to 3: 2.5 is not more than 0.5 below 3
    assert longest_wait([(0, 3.0), (10, 3.0), (20, 2.0)], worth_bits=0.01) == 20
    assert longest_wait([(0, 3.0), (1, 3.1)], worth_bits=0.01) == 0


def test_finished_runs_of_both_commands_are_shown_in_steps(command, capsys) -> None:
    assert command(MDL, "eraser=leace", "mdl.num_chunks=2", *TINY).code == 0
    assert command(TRAIN, "eraser=control", *TINY).code == 0
    assert main(["runs"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if "digits" in line]
    assert [line[2:] for line in lines if line[3] == "1,295" and line[2] == "leace"] == [
        ["leace", "1,295", "–", "–", "0", "0", "63", "63"]  # 3 epochs of 21 steps; a linear model never leaves
    ]
    (control,) = [line[3:] for line in lines if line[2] == "control"]
    assert control[:3] == ["1,295", "0", "0"]
    assert control[-2:] == ["63", "63"]
