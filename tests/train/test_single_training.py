"""Weights that `python -m train` keeps: those of a prequential run's last size, and none where the lease is lost."""

import json
from pathlib import Path

import pytest
import torch

from erasure.store.checked_files import load_tensors
from harness.run_directory import LOCK
from mdl.__main__ import COMMAND as MDL
from train.__main__ import COMMAND as TRAIN
from train.single_training import WEIGHTS
from train.training import Engine

TINY = ["eraser=control", "model=linear", "train=quick", "train.max_epochs=2", "logger.mode=disabled"]


def test_a_prequential_run_ends_with_the_same_weights_and_keeps_them(command) -> None:
    for chosen in (TRAIN, MDL):
        assert command(chosen, *TINY, "seeds=[0,1]").code == 0
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
    outcome = command(TRAIN, *TINY, "seeds=[0]")
    assert outcome.code == 1
    assert "process 12 on node7 has taken over" in outcome.err
    assert not list(Path("runs").glob("*/*.safetensors"))
