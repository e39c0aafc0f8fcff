"""The benchmark runs in miniature, without the peers' packages or real images; its arithmetic is checked."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image

from erasure import ClassMoments, QleaceEraser
from scripts.benchmarks import eraser_fits, erasers
from scripts.benchmarks.images import labelled_images, side_of, synthetic_images

SMALL = ["--dim", "48", "--samples", "400", "--classes", "4"]


def test_every_part_reports_and_json_holds_the_rows(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eraser_fits, "installed", lambda _: False)
    monkeypatch.setattr(eraser_fits, "STREAM", 5)
    monkeypatch.setattr(erasers, "IMAGES", 10)
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
    assert "synthetic" in saved["title"]
    ours = [row for row in saved["rows"] if row["who"].startswith("ours")]
    assert all(row["cost"]["seconds"] > 0 for row in ours)
    missing = [row for row in saved["rows"] if row["note"] == eraser_fits.MISSING]
    assert all(row["cost"] is None for row in missing)
    assert {row["who"] for row in missing} == {"concept-erasure", "POT, barycenter only"}


def test_gap_and_edit_from_moments_are_those_of_the_data() -> None:
    images, z = synthetic_images(4, 400, 4)
    x = images.flatten(1).double() / 255
    moments = ClassMoments.fit(x, z)
    eraser = QleaceEraser.from_moments(moments)
    assert eraser_fits.covariance_gap(moments, eraser.maps) < 1e-12
    identity = torch.eye(48, dtype=torch.float64).expand(4, -1, -1)
    assert eraser_fits.covariance_gap(moments, identity) > 0.01
    assert eraser_fits.edit_size(moments, identity) == 0
    centred = torch.stack([x[i] - moments.means[z[i]] for i in range(len(x))])
    mapped = torch.stack([centred[i] @ eraser.maps[z[i]] for i in range(len(x))])
    edit = (mapped - centred).square().sum(1).mean() / moments.total.trace()
    assert eraser_fits.edit_size(moments, eraser.maps) == pytest.approx(float(edit), rel=1e-9)


def test_images_of_a_folder_are_averaged_to_the_side(tmp_path: Path) -> None:
    for j in range(3):
        folder = tmp_path / "photos" / "train" / f"class {j}"
        folder.mkdir(parents=True)
        for i in range(4):
            Image.fromarray(np.full((8, 8, 3), 60 * j + i, np.uint8)).save(folder / f"{i}.png")
    images, labels, what = labelled_images(4, 6, 3, str(tmp_path / "photos"))
    assert images.shape == (6, 3, 4, 4)
    assert images[:, 0, 0, 0].tolist() == [0, 2, 60, 62, 120, 122]
    assert labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert what == "photos, 4 x 4, n = 6"
    with pytest.raises(ValueError, match="--classes=2: .*photos has 3"):
        labelled_images(4, 6, 2, str(tmp_path / "photos"))


@pytest.mark.parametrize("dim", [0, -3, 75, 100, 3 * 31 * 31])
def test_dimensions_that_are_no_images_are_refused(dim: int, capsys) -> None:
    with pytest.raises(ValueError, match=f"--dim={dim}: must be 3 x side x side with an even side"):
        side_of(dim)
    with pytest.raises(SystemExit) as refused:
        erasers.main(["--dim", str(dim)])
    assert refused.value.code == 2
    assert "even side" in capsys.readouterr().err
