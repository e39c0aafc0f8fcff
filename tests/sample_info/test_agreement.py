"""Correlations between runs, of scores that are made up."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from erasure.storage import save_tensors
from sample_info.agreement import agreements
from sample_info.movement import read_scores
from train.compare import arrange


def finished(runs_dir: Path, depth: int, scores: Tensor, index: list[int]) -> dict[str, Any]:
    run_id = f"run-{depth}"
    n = len(index)
    tensors = {"index": torch.tensor(index), "given_label": torch.zeros(n, dtype=torch.int64), "f_si_nats": scores}
    save_tensors(runs_dir / run_id / "scores.safetensors", tensors)
    parts = {"dataset": {"name": "d"}, "eraser": {"name": "control"}, "model": {"name": "m", "depth": depth}}
    return {"run_id": run_id, "seeds": list(range(len(scores))), "config": parts}


def test_runs_are_compared_seed_by_seed_and_with_themselves_between_seeds(tmp_path) -> None:
    a = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    others = [(a * 2 + 1, [0, 1, 2]), (a.flip(0), [0, 1, 2]), (a, [0, 1, 3])]
    results = [
        finished(tmp_path, depth, scores, index) for depth, (scores, index) in enumerate([(a, [0, 1, 2]), *others])
    ]
    (found,) = agreements(
        arrange(results), lambda result: read_scores(tmp_path / result["run_id"])
    )  # the last has other examples
    assert found.names == [f"d · m (depth={depth})" for depth in range(3)]
    expected = [[-1, 1, -1], [1, -1, -1], [-1, -1, -1]]
    for row, wanted in zip(found.correlation, expected, strict=True):
        assert row == pytest.approx(wanted)


def test_one_model_is_compared_with_nothing(tmp_path) -> None:
    result = finished(tmp_path, 0, torch.rand(2, 3), [0, 1, 2])
    assert agreements(arrange([result]), lambda result: read_scores(tmp_path / result["run_id"])) == []
