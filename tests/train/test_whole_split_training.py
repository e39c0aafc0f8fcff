"""`python -m train`: a theorem, the last training of `python -m mdl`, and the weights that are kept, or lost."""

import json
import math
from pathlib import Path

import pytest
import torch
from PIL import Image

from erasure.store.checked_files import load_tensors, read_json
from harness.example_bits import read_test_bits
from harness.run_directory import LOCK
from mdl.__main__ import COMMAND as MDL
from train import whole_split_training
from train.__main__ import COMMAND as TRAIN
from train.prepared_training import WEIGHTS

TINY = ["eraser=control", "model=linear", "train=quick", "train.max_epochs=2", "logger.mode=disabled"]


def test_the_theorem_seen_by_train(command, real_figures) -> None:
    """A linear model learns from the control's class means and cannot beat the label entropy without them."""
    outcome = command(TRAIN, "eraser=control,leace", "-m", "model=linear", "train=quick", "logger.mode=disabled")
    assert outcome.code == 0, outcome.err
    results = {r["config"]["eraser"]["name"]: r for r in (read_json(p) for p in Path("runs").glob("*/result.json"))}
    entropy = results["control"]["label_entropy_bits"]
    assert entropy == pytest.approx(math.log2(10), abs=1e-3)
    for name in ("train_loss_bits", "end_train_loss_bits"):
        assert results["control"]["final"][name][0] < 1.0
        assert results["leace"]["final"][name][0] == pytest.approx(entropy, abs=0.01)
        assert results["leace"]["final"][name][0] >= entropy - 1e-4
    (figure,) = Path("runs/sweeps").glob("*/loss_curves.png")
    assert Image.open(figure).size[0] > 1000


def test_the_last_training_of_mdl_is_that_of_train_and_both_keep_its_weights(command) -> None:
    tiny = ["train=quick", "train.max_epochs=3", "train.stack=all", "seeds=[2,5]", "logger.mode=disabled"]
    assert command(MDL, "mdl=quick", *tiny).code == 0
    assert command(TRAIN, *tiny).code == 0
    by_command = {r["command"]: r for r in (read_json(path) for path in Path("runs").glob("*/result.json"))}
    assert by_command["train"]["final"]["loss_bits"] == by_command["mdl"]["final"]["loss_bits"]
    assert by_command["train"]["epochs"] == by_command["mdl"]["curve"][-1]["epochs"]
    for result in by_command.values():
        bits = read_test_bits([Path("runs", result["run_id"])], pytest.fail)  # for the error over test examples
        assert [bits[seed].mean() for seed in (2, 5)] == pytest.approx(result["final"]["loss_bits"])
    (alone, about), (last, about_last) = (load_tensors(path) for path in Path("runs").glob(f"*/{WEIGHTS}"))
    assert about == about_last
    assert alone
    assert all(torch.equal(weights, last[name]) for name, weights in alone.items())


@pytest.mark.parametrize("finished", [False, True])
def test_who_was_taken_for_dead_keeps_no_weights(command, monkeypatch, caplog, finished: bool) -> None:
    real = whole_split_training.fit_members
    command(TRAIN, *TINY, "seeds=[0]")
    (result,) = Path("runs").glob("*/result.json")
    theirs = result.read_bytes()
    for path in result.parent.iterdir():
        path.unlink()

    def fit_slowly(*arguments, **options):
        fitted = real(*arguments, **options)
        (lock,) = Path("runs").glob(f"*/{LOCK}")
        lock.write_text(json.dumps({"token": "theirs", "host": "node7", "pid": 12}))
        if finished:
            lock.unlink()
            result.write_bytes(theirs)
        return fitted

    monkeypatch.setattr(whole_split_training, "fit_members", fit_slowly)
    with caplog.at_level("INFO"):
        outcome = command(TRAIN, *TINY, "seeds=[0]")
    assert outcome.code == (0 if finished else 1)
    (line,) = [line for line in [*caplog.messages, *outcome.err.splitlines()] if "has taken over" in line]
    assert ("and finished it" if finished else "process 12 on node7 has taken over") in line
    assert not list(Path("runs").glob("*/*.safetensors"))
    (log,) = Path("runs").glob("*/log.txt")
    assert "Traceback" not in log.read_text() + outcome.err
