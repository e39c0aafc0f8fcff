"""Datasets under an eraser that are no images are refused where images are needed."""

from pathlib import Path

import numpy as np
import pytest

from scripts.erased_dataset_from_overrides import erased_by, require_images


def test_vectors_cannot_be_shown(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.random.default_rng(0).normal(size=(60, 5)), y=np.arange(60) % 2)
    overrides = ["dataset=arrays", f"dataset.path={tmp_path / 'a.npz'}", f"cache_dir={tmp_path}"]
    with pytest.raises(ValueError, match="no images: its examples are vectors of 5 values, which cannot be shown"):
        require_images(erased_by("leace", overrides))
