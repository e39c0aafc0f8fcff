"""A user's folder of 180 small images: warnings in the log and under the table, no training on two."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harness.result import read_result
from mdl.__main__ import COMMAND as MDL
from mdl.result import MdlResult
from train.__main__ import COMMAND as TRAIN

FEW = "class moments cannot be estimated from 130 examples (43 in the smallest class) of 432 values each"
TINY = ["model=linear", "train=quick", "train.max_epochs=1", "seeds=[0]", "logger.mode=disabled", "eraser=leace"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    for j, name in enumerate(("bark", "cloth", "sand")):
        (tmp_path / "images" / "train" / name).mkdir(parents=True)
        for i in range(60):
            pixels = draw.integers(40 * j, 150 + 40 * j, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / "train" / name / f"{i}.png")
    return tmp_path / "images"


def one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_few_images_are_named_in_the_log_and_under_the_table(command, folder: Path, tmp_path: Path, caplog) -> None:
    caplog.set_level("INFO")
    images = ["dataset=image_folder", f"dataset.root={folder}"]
    outcome = command(MDL, *TINY, "mdl=quick", *images)
    assert outcome.code == 0
    said = caplog.text
    assert FEW in said
    assert "training sizes 10, 40, 130: the first network learns from 10 examples of 3 classes" in said
    assert "take smaller images (dataset.size=6) or more of them" in said
    below = one_line(outcome.out)
    assert f"Few examples: {FEW}" in below
    assert "Few labels: the first network learns from 10 examples of 3 classes" in below
    (path,) = (tmp_path / "runs").glob("mdl*/result.json")
    result = read_result(path)
    assert isinstance(result, MdlResult)
    assert [point.n for point in result.curve] == [10, 40, 130]

    caplog.clear()
    trained = command(TRAIN, *TINY, *images)  # the erased images are in the cache
    assert FEW in caplog.text
    assert f"Few examples: {FEW}" in one_line(trained.out)
    caplog.clear()
    enough = command(TRAIN, *TINY, *images, "dataset.size=6")  # as it says
    assert "cannot be estimated" not in caplog.text + enough.out
