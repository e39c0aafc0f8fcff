"""`python -m train`: a theorem, the last training of `python -m mdl`, and the weights that are kept, or lost."""

import math
from pathlib import Path

import pytest
import torch
from PIL import Image

from erasure.store.checked_files import load_tensors, read_json
from harness.example_bits import read_test_bits
from mdl.__main__ import COMMAND as MDL
from train.__main__ import COMMAND as TRAIN
from train.prepared_training import WEIGHTS


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
    assert by_command["train"]["sharp_drop"] == by_command["mdl"]["sharp_drop"]
    for result in by_command.values():
        bits = read_test_bits([Path("runs", result["run_id"])], pytest.fail)  # for the error over test examples
        assert [bits[seed].mean() for seed in (2, 5)] == pytest.approx(result["final"]["loss_bits"])
    (alone, about), (last, about_last) = (load_tensors(path) for path in Path("runs").glob(f"*/{WEIGHTS}"))
    assert about == about_last
    assert alone
    assert all(torch.equal(weights, last[name]) for name, weights in alone.items())
