"""Files with numbers of single examples that are damaged."""

from pathlib import Path

import pytest
import torch

from erasure.store.checked_files import save_tensors
from harness.example_bits import read_example_tensors


@pytest.mark.parametrize(
    ("changes", "seeds", "said"),
    [
        ({"bits": torch.ones(1, 9)}, [0, 1], "lacks bits, finite numbers of shape [2, 9]"),
        ({"bits": torch.full((2, 9), torch.nan)}, [0, 1], "lacks bits, finite numbers"),
        ({"labels": torch.ones(9)}, [0, 1], "lacks labels, finite numbers of shape [9]"),
        ({}, "01", "does not name its seeds"),
    ],
)
def test_a_damaged_file_is_noted_and_left_out(changes: dict[str, torch.Tensor], seeds, said: str, tmp_path) -> None:
    tensors = {"labels": torch.arange(9) // 5, "bits": torch.ones(2, 9)}
    save_tensors(tmp_path / "whole", tensors, {"seeds": [0, 1]})
    save_tensors(tmp_path / "odd", tensors | changes, {"seeds": seeds})
    notes: list[str] = []

    def read(path: Path):
        return read_example_tensors(path, ("labels",), ("bits",), notes.append)

    whole = read(tmp_path / "whole")
    assert whole is not None
    assert whole.tensors["bits"].tolist() == [[1.0] * 9] * 2
    assert read(tmp_path / "missing") is None
    assert notes == []
    assert read(tmp_path / "odd") is None
    (note,) = notes
    assert said in note
