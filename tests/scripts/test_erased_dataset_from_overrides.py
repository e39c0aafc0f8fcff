"""Datasets under an eraser that are no images are refused where images are needed."""

from pathlib import Path

import numpy as np
import pytest

from scripts.command_line import argument_parser
from scripts.erased_dataset_from_overrides import erased_by, parse_with_erasers, require_images


@pytest.mark.parametrize("erasers", [["control", "leace"], ["control,leace"], ["control,", "leace"]])
def test_overrides_stand_before_between_and_after_options(erasers: list[str]) -> None:
    def parsed(*words: str) -> tuple[list[str], list[str], str]:
        options = parse_with_erasers(argument_parser("a", None, out="b"), ["qleace"], words)
        return sorted(options.overrides), options.erasers, options.out

    expected = ["dataset=digits", "seeds=[0]"], ["control", "leace"], "c"
    assert parsed("dataset=digits", "--erasers", *erasers, "seeds=[0]", "--out", "c") == expected
    assert (
        parsed("--out", "c", "seeds=[0]", "--erasers", *erasers, "--config-dir", "mine", "dataset=digits") == expected
    )
    assert parsed("dataset=digits", "--config-dir=mine", "--out", "c", "seeds=[0]") == (expected[0], ["qleace"], "c")


def test_vectors_cannot_be_shown(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.random.default_rng(0).normal(size=(60, 5)), y=np.arange(60) % 2)
    overrides = ["dataset=arrays", f"dataset.path={tmp_path / 'a.npz'}", f"cache_dir={tmp_path}"]
    with pytest.raises(ValueError, match="no images: its examples are vectors of 5 values, which cannot be shown"):
        require_images(erased_by("leace", overrides))
