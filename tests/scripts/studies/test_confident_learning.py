"""Confident learning finds wrong labels among the digits."""

from pathlib import Path

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from sample_info.__main__ import VERB
from sample_info.kinds import flip_labels
from scripts.studies.confident_learning import label_suspicion, main


def test_it_finds_wrong_labels_of_digits(digits: tuple[Tensor, Tensor]) -> None:
    pytest.importorskip("cleanlab", reason="of the bench group: uv sync --group bench")
    x, z = digits[0][:600], digits[1][:600]
    noisy, flipped = flip_labels(z, 10, 0.1, seed=0)
    suspicion = label_suspicion(x, noisy)
    assert suspicion.shape == (600,)
    assert 0 <= suspicion.min() <= suspicion.max() <= 1
    assert roc_auc_score(flipped, suspicion) > 0.9
    shuffled = suspicion[torch.randperm(600, generator=torch.Generator().manual_seed(0))]
    assert roc_auc_score(flipped, shuffled) < 0.65  # the control


def test_it_stands_beside_a_runs_scores(command, capsys) -> None:
    pytest.importorskip("cleanlab", reason="of the bench group: uv sync --group bench")
    options = ["model.width=64", "sample_info.examples=100", "logger.mode=disabled"]
    assert command(VERB, *options, "sample_info.data.label_noise=0.1").code == 0
    runs = [str(path) for path in Path("runs").glob("sample_info-*")]
    assert main(runs) == 0
    shown = capsys.readouterr().out
    assert "cleanlab" in shown
    assert "digits" in shown


def test_runs_without_wrong_labels_are_named(tmp_path, capsys) -> None:
    assert main([str(tmp_path)]) == 2
    assert f"{tmp_path}: no finished run of python -m sample_info with label noise" in capsys.readouterr().err
