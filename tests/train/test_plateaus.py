"""`python -m train` on data without class means and covariances: a plateau, and what comes after it."""

from pathlib import Path

import pytest

from erasure.store.storage import read_json
from train.__main__ import COMMAND as TRAIN

QLEACE = ["eraser=qleace", "seeds=[0,1]", "train.stack=all", "logger.mode=disabled"]


def trained(command, *arguments: str) -> dict:
    outcome = command(TRAIN, *QLEACE, *arguments)
    assert outcome.code == 0, outcome.err
    (path,) = Path("runs").glob("train-*/result.json")
    return read_json(path)


@pytest.mark.parametrize("preset", ["quick", "default"])
def test_presets_do_not_stop_on_the_plateau(preset: str, command) -> None:
    result = trained(command, f"train={preset}", "train.max_epochs=60")
    assert result["left_plateau"] == [True, True]
    assert min(result["plateau_epochs"]) > 10  # 210 optimiser steps, more than twice what `quick` waited once
    assert max(result["final"]["end_train_loss_bits"]) < 3.28  # 3.322 while on the plateau


def test_a_seed_that_is_stopped_on_the_plateau_is_marked(command) -> None:
    result = trained(command, "train=quick", "train.patience_steps=80", "train.plateau_steps=0")
    assert result["left_plateau"] == [False, False]
    assert result["plateau_epochs"] == [None, None]
    assert result["ended"] == ["patience", "patience"]
    assert min(result["final"]["end_train_loss_bits"]) > 3.3


def test_a_seed_that_runs_out_of_epochs_on_the_plateau_is_marked(command) -> None:
    result = trained(command, "train=quick", "train.max_epochs=3")
    assert result["left_plateau"] == [False, False]
    assert result["ended"] == ["max_epochs", "max_epochs"]
    assert result["epochs"] == [3, 3]
    assert result["untrained"] == [epoch == 0 for epoch in result["best_epoch"]]
