"""Threads of a run: one for small networks and erasers, all for large ones, whatever the number of cores."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from erasure import LeaceEraser
from mdl.__main__ import COMMAND as MDL
from models.mlp import MLP
from sample_info.__main__ import COMMAND as SAMPLE_INFO
from train.__main__ import COMMAND as TRAIN

TINY = ["seeds=[0,1]", "train=quick", "train.max_epochs=1", "logger.mode=disabled"]
PUBLISHED = ["train=published", "train.precision=float32", "train.max_epochs=1"]


@pytest.fixture(autouse=True)
def three_allowed() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def in_networks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of threads of all forward passes of MLPs in this process but those of a single image, in order."""
    numbers, forward = list[int](), MLP.forward

    @functools.wraps(forward)
    def noted(self: MLP, x: Tensor) -> Tensor:
        if len(x) > 1 or x.ndim > 4:  # not one that counts products
            numbers.append(torch.get_num_threads())
        return forward(self, x)

    monkeypatch.setattr(MLP, "forward", noted)
    return numbers


@pytest.fixture
def in_erasers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of threads of all fits of LEACE in this process."""
    numbers, fitted = list[int](), LeaceEraser.from_moments

    @functools.wraps(fitted)
    def noted(*arguments: Any, **options: Any) -> LeaceEraser:
        numbers.append(torch.get_num_threads())
        return fitted(*arguments, **options)

    monkeypatch.setattr(LeaceEraser, "from_moments", noted)
    return numbers


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (MDL, []),
        (MDL, PUBLISHED),
        (TRAIN, []),
        (SAMPLE_INFO, ["sample_info.examples=40", "sample_info.training.steps=3"]),
    ],
    ids=["blocks", "published", "train", "sample_info"],
)
def test_small_networks_and_erasers_take_one_thread(command, in_networks, in_erasers, what, words: list[str]) -> None:
    tiny = [word for word in TINY if what is not SAMPLE_INFO or "train" not in word]
    chunks = [f"mdl.num_chunks={3 if words == PUBLISHED else 2}"] if what is MDL else []
    outcome = command(what, "eraser=leace", *tiny, *chunks, *words)
    assert outcome.code == 0, outcome.err
    assert in_networks
    assert in_erasers
    assert {*in_networks, *in_erasers} == {1}
    assert torch.get_num_threads() == 3


def test_large_networks_and_erasers_take_all_threads(command, tmp_path: Path, in_networks, in_erasers) -> None:
    np.savez(tmp_path / "images.npz", x=torch.rand(400, 1024).numpy(), y=np.arange(400) % 2)
    large = ["dataset=arrays", f"dataset.path={tmp_path / 'images.npz'}", "model.width=2048", "train.batch_size=1000"]
    outcome = command(TRAIN, "eraser=leace", *TINY, "train.min_epoch_steps=1", *large)
    assert outcome.code == 0, outcome.err
    assert {*in_networks, *in_erasers} == {3}
