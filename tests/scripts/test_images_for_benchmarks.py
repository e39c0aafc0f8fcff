"""Images for benchmarks: those of a folder, and the sizes that they may have."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scripts.benchmarks import erasers
from scripts.images_for_benchmarks import labelled_images, side_of


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
    with pytest.raises(ValueError, match="photos has 3 classes: must have 2 here"):
        labelled_images(4, 6, 2, str(tmp_path / "photos"))


@pytest.mark.parametrize("dim", [0, -3, 75, 100, 3 * 31 * 31])
def test_dimensions_that_are_no_images_are_refused(dim: int, capsys) -> None:
    with pytest.raises(ValueError, match=f"--dim={dim}: must be 3 x side x side with an even side"):
        side_of(dim)
    with pytest.raises(SystemExit) as refused:
        erasers.main(["--dim", str(dim)])
    assert refused.value.code == 2
    assert "even side" in capsys.readouterr().err
