"""The benchmark runs in miniature, without the peers' packages or real images; its arithmetic is checked."""

import functools
import json
from pathlib import Path

import pytest
import timm
import torch

from erasure import ClassMoments, QleaceEraser
from scripts.benchmarks import erasers
from scripts.images_for_benchmarks import synthetic_images

SMALL = ["--dim", "48", "--samples", "400", "--classes", "4"]


def test_every_part_reports_and_json_holds_the_rows(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasers, "installed", lambda _: False)
    monkeypatch.setattr(erasers, "STREAM", 5)
    monkeypatch.setattr(erasers, "IMAGES", 10)
    monkeypatch.setattr(erasers, "LAYER_DEPTHS", (2,))
    monkeypatch.setattr(erasers, "LAYER_BATCHES", 1)
    monkeypatch.setattr(timm, "create_model", functools.partial(timm.create_model, depth=1))
    assert erasers.main([*SMALL, "--json", str(tmp_path / "rows.json")]) == 0
    printed = capsys.readouterr().out
    saved = json.loads((tmp_path / "rows.json").read_text())
    works = {row["what"] for row in saved["rows"]}
    for work in (
        "moments",
        "LEACE fit",
        "QLEACE fit",
        "ALF-QLEACE fit",
        "gradient, one class",
        "LEACE apply",
        "order spectrum",
    ):
        assert work in works
        assert work in printed
    runs = {row["who"]: row["note"] for row in saved["rows"] if row["what"].startswith("2 blocks, 1 batches")}
    assert {note.split()[0] for note in runs.values()} == {"4.0"}  # one full pass, and each block once
    assert "synthetic" in saved["title"]
    ours = [row for row in saved["rows"] if row["who"].startswith("ours")]
    assert all(row["cost"]["seconds"] > 0 for row in ours)
    missing = [row for row in saved["rows"] if row["note"] == erasers.MISSING]
    assert all(row["cost"] is None for row in missing)
    assert {row["who"] for row in missing} == {"concept-erasure", "POT, barycenter only"}


def test_gap_and_edit_from_moments_are_those_of_the_data() -> None:
    images, z = synthetic_images(4, 400, 4)
    x = images.flatten(1).double() / 255
    moments = ClassMoments.fit(x, z)
    eraser = QleaceEraser.from_moments(moments)
    assert erasers.covariance_gap(moments, eraser.maps) < 1e-12
    identity = torch.eye(48, dtype=torch.float64).expand(4, -1, -1)
    assert erasers.covariance_gap(moments, identity) > 0.01
    assert erasers.edit_size(moments, identity) == 0
    centred = torch.stack([x[i] - moments.means[z[i]] for i in range(len(x))])
    mapped = torch.stack([centred[i] @ eraser.maps[z[i]] for i in range(len(x))])
    edit = (mapped - centred).square().sum(1).mean() / moments.total.trace()
    assert erasers.edit_size(moments, eraser.maps) == pytest.approx(float(edit), rel=1e-9)
