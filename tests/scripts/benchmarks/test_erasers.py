"""Every part of the benchmark of erasers runs in miniature; its arithmetic is checked."""

import argparse
from typing import Any

import pytest
import torch

from erasure import ClassMoments, QleaceEraser
from scripts.benchmarks.erasers import PARTS, EraserBenchmark, covariance_gap, edit_size
from scripts.images_for_benchmarks import synthetic_images

SMALLER: dict[str, dict[str, Any]] = {
    "streaming": {"batches": 5},
    "layers": {"depths": [2], "count": 1},
}


@pytest.fixture(scope="module")
def bench() -> EraserBenchmark:
    options = {"dim": 48, "samples": 400, "classes": 4, "images": "", "device": "cpu", "full_peer": False}
    return EraserBenchmark(argparse.Namespace(**options))


@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_measured(part: str, bench: EraserBenchmark) -> None:
    rows = PARTS[part](bench, **SMALLER.get(part, {}))
    assert all(row.cost is not None and row.cost.seconds > 0 for row in rows if row.who.startswith("ours"))
    if part == "layers":
        # a full pass and each block once; ours checks one batch by another full pass
        assert {row.note for row in rows} == {"4.0 block runs per batch", "6.0 block runs per batch"}


def test_gap_and_edit_from_moments_are_those_of_the_data() -> None:
    images, z = synthetic_images(4, 400, 4)
    x = images.flatten(1).double() / 255
    moments = ClassMoments.fit(x, z)
    eraser = QleaceEraser.from_moments(moments)
    assert covariance_gap(moments, eraser.maps) < 1e-12
    identity = torch.eye(48, dtype=torch.float64).expand(4, -1, -1)
    assert covariance_gap(moments, identity) > 0.01
    assert edit_size(moments, identity) == 0
    centred = torch.stack([x[i] - moments.means[z[i]] for i in range(len(x))])
    mapped = torch.stack([centred[i] @ eraser.maps[z[i]] for i in range(len(x))])
    edit = (mapped - centred).square().sum(1).mean() / moments.total.trace()
    assert edit_size(moments, eraser.maps) == pytest.approx(float(edit), rel=1e-9)
