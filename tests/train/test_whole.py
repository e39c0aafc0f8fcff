"""`python -m train` on data without class means and covariances: a plateau, and what comes after it."""

import json
from pathlib import Path

import pytest
import torch

from erasure.store.storage import load_tensors, read_json
from harness.run import LOCK
from mdl.__main__ import COMMAND as MDL
from train.__main__ import COMMAND as TRAIN
from train.training import Engine
from train.whole import WEIGHTS

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


def test_a_prequential_run_ends_with_the_same_weights_and_keeps_them(command) -> None:
    tiny = ["eraser=control", "model=linear", "train=quick", "train.max_epochs=2"]
    for chosen in (TRAIN, MDL):
        assert command(chosen, *tiny, "seeds=[0,1]", "logger.mode=disabled").code == 0
    (alone, about), (last, about_last) = (load_tensors(path) for path in Path("runs").glob(f"*/{WEIGHTS}"))
    assert about == about_last
    assert alone
    assert all(torch.equal(weights, last[name]) for name, weights in alone.items())


def test_who_was_taken_for_dead_keeps_no_weights(command, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Engine.fit

    def fit_slowly(self: Engine, *arguments, **options):
        fitted = real(self, *arguments, **options)
        (lock,) = Path("runs").glob(f"*/{LOCK}")
        lock.write_text(json.dumps({"token": "theirs", "host": "node7", "pid": 12}))
        return fitted

    monkeypatch.setattr(Engine, "fit", fit_slowly)
    tiny = ["model=linear", "train=quick", "train.max_epochs=1", "seeds=[0]", "logger.mode=disabled"]
    outcome = command(TRAIN, "eraser=control", *tiny)
    assert outcome.code == 1
    assert "process 12 on node7 has taken over" in outcome.err
    assert not list(Path("runs").glob("*/*.safetensors"))
