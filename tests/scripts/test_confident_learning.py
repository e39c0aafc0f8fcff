"""Confident learning finds wrong labels among the digits."""

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from sample_info.label_noise import flip_labels
from scripts.confident_learning import label_suspicion


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
