"""Images under each eraser in a report: one grid per dataset, and a line for what cannot be had."""

from pathlib import Path

import numpy as np
from PIL import Image

from conf.compose import composed
from mdl.settings import MdlConfig
from scripts.report.images import draw_grids


def config(*overrides: str) -> dict:
    return composed("mdl", overrides, MdlConfig).plain


def test_a_grid_for_each_dataset_and_a_line_for_what_is_not_there(tmp_path: Path, real_figures) -> None:
    configs = [config(f"eraser={eraser}", "model=linear") for eraser in ("leace", "control", "leace")]
    configs.append(config("eraser=leace", "dataset.normalize=zscore"))
    configs.append(config("dataset=image_folder", f"dataset.root={tmp_path / 'nowhere'}"))
    np.savez(tmp_path / "a.npz", x=np.random.default_rng(0).normal(size=(60, 5)), y=np.arange(60) % 2)
    configs.append(config("dataset=arrays", f"dataset.path={tmp_path / 'a.npz'}"))
    problems: list[str] = []
    files = draw_grids(configs, str(tmp_path / "cache"), tmp_path, problems.append)
    assert {caption: path.name for caption, path in files.items()} == {
        "digits": "digits-erasers.png", "digits zscore": "digits-zscore-erasers.png"
    }  # fmt: skip
    heights = {path.name: Image.open(path).size[1] for path in files.values() if path.with_suffix(".pdf").exists()}
    assert heights["digits-erasers.png"] > 1.5 * heights["digits-zscore-erasers.png"]  # two rows, one row
    line, no_images = problems
    assert (
        no_images
        == "no images of arrays under leace: no images: its examples are vectors of 5 values, which cannot be shown"
    )
    assert line.startswith("no images of image_folder under leace: ")
    assert str(tmp_path / "nowhere") in line


def test_a_class_that_only_a_run_names_is_not_imported(tmp_path: Path, monkeypatch) -> None:
    """A folder of somebody else's runs may hold such a module."""
    (tmp_path / "theirs.py").write_text("from pathlib import Path\nPath('canary').touch()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    good = config("eraser=control", "model=linear")
    configs = [{**good, part: {**good[part], "_target_": "theirs.Mine"}} for part in ("dataset", "eraser")]
    nested = {"name": "mixed", "_target_": "erasure.datasets.mixture.Mixture", "parts": {"a": configs[0]["dataset"]}}
    problems: list[str] = []
    assert draw_grids([*configs, {**good, "dataset": nested}], "cache", tmp_path, problems.append) == {}
    assert ["_target_=theirs.Mine: no YAML file names this class" in problem for problem in problems] == [True] * 3
    assert not Path("canary").exists()
