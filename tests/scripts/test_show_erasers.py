"""The grid of images has a row per eraser and a column per image, and refuses nonsense in one line."""

from pathlib import Path

import pytest
from PIL import Image

from scripts import show_erasers


def test_grid(tmp_path: Path, capsys, real_figures) -> None:
    path = tmp_path / "grid.png"
    erasers = ["control", "leace", "qleace"]
    assert show_erasers.main([f"cache_dir={tmp_path}", "--erasers", *erasers, "--out", str(path)]) == 0
    assert f"figure: {path}" in capsys.readouterr().out
    with Image.open(path) as image:
        width, height = image.size
        colours = image.convert("L").getextrema()
    assert width / height == pytest.approx((10 * 0.45 + 1.6) / (3 * 0.48 + 0.32), rel=0.1)
    assert colours == (0, 255)


def test_mistakes_are_one_line(tmp_path: Path, capsys) -> None:
    assert show_erasers.main(["dataset=digit", f"cache_dir={tmp_path}"]) == 2
    assert capsys.readouterr().err.startswith("unknown dataset=digit: did you mean digits?")
