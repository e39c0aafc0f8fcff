"""Codelengths of single labels: their pointwise V-information, and files that are damaged."""

from pathlib import Path

import pytest
import torch

from erasure.store.checked_files import save_tensors
from harness.example_bits import CODED_BITS, CodedBits, read_coded_bits


def test_information_is_what_a_label_costs_less_than_by_its_share() -> None:
    bits = torch.tensor([[0.0, 1.0, 1.0, 9.0], [0.0, 2.0, 3.0, 9.0]])
    trained_on = torch.tensor([[5, 5, 5, 0], [0, 5, 5, 0]])
    coded = CodedBits((0, 1), torch.arange(4), torch.tensor([0, 0, 1, 0]), bits, trained_on)
    share = -torch.tensor(0.75).log2().item()  # of class 0
    expected = torch.tensor([share, share - 1.5, 2 - 2.0, torch.nan], dtype=torch.float64)
    torch.testing.assert_close(coded.information, expected, equal_nan=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bits": torch.ones(1, 9)}, "lacks bits, finite numbers of shape"),
        ({"labels": torch.full((9,), 2**40)}, "labels that are not classes"),
    ],
)
def test_a_damaged_file_is_noted_and_left_out(changes: dict[str, torch.Tensor], said: str, tmp_path: Path) -> None:
    index, rows = torch.arange(9), torch.ones(2, 9)
    tensors = {"index": index, "labels": index // 5, "bits": rows, "trained_on": rows.int()}
    for name, damaged in (("whole", {}), ("odd", changes)):
        (tmp_path / name).mkdir()
        save_tensors(tmp_path / name / CODED_BITS, tensors | damaged, {"seeds": [0, 1]})
    notes: list[str] = []
    coded = read_coded_bits([tmp_path / "odd", tmp_path / "whole"], notes.append)
    assert coded is not None
    assert coded.bits.tolist() == rows.tolist()
    (note,) = notes
    assert said in note
