"""Files of erasers: what is written is read back, and whatever else a file holds is refused in one line."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import erasure
from erasure import AlfQleaceEraser, ClassMoments, Eraser, GradientEraser, LeaceEraser, QleaceEraser
from erasure.store.checked_files import digest, fingerprint, load_tensors, save_tensors


def test_only_what_is_an_eraser_of_the_family_is_loaded(digits, tmp_path) -> None:
    x, z = digits
    LeaceEraser.fit(x, z).save(tmp_path / "eraser")
    with pytest.raises(ValueError, match=r"holds erasure\S+LeaceEraser: QleaceEraser.load reads erasure\S+Qleace"):
        QleaceEraser.load(tmp_path / "eraser")
    save_tensors(tmp_path / "moments", ClassMoments.fit(x, z).state_dict())
    namesake = type("LeaceEraser", (LeaceEraser,), {"version": 1})
    assert type(Eraser.load(tmp_path / "eraser")) is LeaceEraser is not namesake
    with pytest.raises(ValueError, match="moments holds no eraser"):
        Eraser.load(tmp_path / "moments")
    with pytest.raises(ValueError, match="GradientEraser has no map to store: save the erased examples"):
        GradientEraser.from_moments(ClassMoments.fit(x, z), weights=(1.0, 1.0, 1.0)).save(tmp_path / "no")


@pytest.mark.parametrize("d", [1, 5])
@pytest.mark.parametrize("name", [name for name in erasure.__all__ if re.fullmatch(r"\w+Eraser", name)])
def test_erasers_of_one_direction_or_one_coordinate_are_saved(name: str, d: int, tmp_path: Path) -> None:
    kind = getattr(erasure, name)
    x, z = torch.randn(60, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64), torch.arange(60) % 2
    options = {"RandomEraser": {"num_directions": 1}, "RandomEditEraser": {"edit_size": 0.1}}.get(name, {})
    one = kind.fit(x, z, **options)
    if kind.transductive:
        with pytest.raises(ValueError, match="has no map to store"):
            one.save(tmp_path / "eraser")
        return
    one.save(tmp_path / "eraser")
    assert torch.equal(Eraser.load(tmp_path / "eraser")(x, z), one(x, z))


def test_tensors_that_share_memory_are_written_apart(tmp_path: Path) -> None:
    whole = torch.arange(6.0)
    save_tensors(tmp_path / "shared", {"whole": whole, "part": whole[2:4], "again": whole, "none": whole[:0]})
    tensors, _ = load_tensors(tmp_path / "shared")
    assert {name: one.tolist() for name, one in tensors.items()} == {
        "whole": [0, 1, 2, 3, 4, 5], "part": [2, 3], "again": [0, 1, 2, 3, 4, 5], "none": [],
    }  # fmt: skip


def forged(path: Path, **changes: Any) -> Path:
    """A file of ALF-QLEACE with other fields, and a checksum that matches; a change to None leaves a field out."""
    AlfQleaceEraser.fit(torch.randn(60, 5, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3).save(path)
    tensors, metadata = load_tensors(path)
    metadata |= {key: changes.pop(key) for key in ("eraser", "options") if key in changes}
    if isinstance(metadata["options"], dict):
        fields = {key: value for key, value in (tensors | metadata["options"] | changes).items() if value is not None}
        tensors = {key: value for key, value in fields.items() if isinstance(value, Tensor)}
        metadata["options"] = {key: value for key, value in fields.items() if key not in tensors}
    save_tensors(path, tensors, metadata)
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"left": None}, "it lacks 'left', one of its fields mean, "),
        ({"mean": None}, "it lacks 'mean', one of its fields mean, "),
        ({"norms": None}, "it lacks 'norms', one of its fields mean, "),
        ({"transform": torch.ones(5)}, "it has 'transform', which is none of its fields mean, "),
        ({"uses_labels": True}, "it has 'uses_labels', which is none of its fields mean, "),
        ({"mean": torch.arange(5)}, "its mean is of torch.int64: need floating numbers"),
        ({"mean": torch.full((5,), torch.nan)}, "its mean has values that are not finite"),
        ({"mean": torch.zeros(1, 5)}, r"its mean has shape \[1, 5\]: need \[d\] with d=5"),
        ({"mean": torch.zeros(0)}, r"its mean has shape \[0\]"),
        ({"mean": [0.0] * 5}, r"its mean is \(0.0, 0.0"),
        ({"left": torch.ones(5, 2).double()}, r"its right has shape \[\d, 5\]: need \[r, d\] with r=2, d=5"),
        ({"left": torch.ones(2, 5)}, r"its left has shape \[2, 5\]: need \[d, r\] with d=5"),
        ({"left": torch.ones(5)}, r"its left has shape \[5\]: need \[d, r\]"),
        ({"left": torch.ones(5, 3, dtype=torch.float32)}, "its left is of torch.float32: need floating numbers"),
        ({"right": "$(reboot)"}, r"its right is '\$\(reboot\)': need a tensor"),
        ({"num_classes": "3"}, "its num_classes is '3': need a whole number of at least 2"),
        ({"num_classes": True}, "its num_classes is True"),
        ({"num_classes": 1}, "its num_classes is 1"),
        ({"num_classes": 10**400}, "its num_classes is 1000"),
        ({"num_classes": torch.ones(3, 3)}, r"its num_classes is a tensor \[3, 3\] of torch.float32"),
        ({"norms": [1, "b", 0.5]}, r"its norms is \(1, 'b', 0.5\): need tuple\[float, ...\]"),
        ({"norms": [10**400]}, r"its norms is \(1000"),
        ({"constant": 2}, r"its constant is 2: need tuple\[int, ...\]"),
        ({"constant": [True]}, r"its constant is \(True,\): need tuple"),
        ({"constant": [1.5]}, r"its constant is \(1.5,\): need tuple"),
        ({"constant": [0, -1]}, r"its constant is \(0, -1\): need coordinates from 0 to 4"),
        ({"constant": [5]}, r"its constant is \(5,\): need coordinates from 0 to 4"),
        ({"options": [1]}, "holds erasure.*AlfQleaceEraser: Eraser.load reads"),
        ({"eraser": ["x"]}, r"holds \['x'\]: Eraser.load reads"),
        ({"eraser": "os.system\n\x1b[2J"}, r"holds os.system\\n\\x1b\[2J: Eraser.load"),
        ({"eraser": "erasure.eraser.Eraser"}, "holds erasure.eraser.Eraser: Eraser.load reads"),
        (
            {"eraser": "erasure.projection_eraser.ProjectionEraser"},
            "holds erasure.*ProjectionEraser: Eraser.load reads",
        ),
        ({"eraser": "erasure.erasers.gradient.GradientEraser"}, "holds erasure.*GradientEraser: Eraser.load reads"),
        ({"eraser": "erasure.erasers.qleace.QleaceEraser"}, "is no QleaceEraser: it (lacks|has) .* of its fields mean"),
    ],
)
def test_a_forged_file_is_refused_in_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = forged(tmp_path / "eraser.safetensors", **changes)
    with pytest.raises(ValueError, match=message) as caught:
        Eraser.load(path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", ["[" * 100_000, "nothing"])
def test_metadata_that_cannot_be_parsed_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path, mean = tmp_path / "eraser", torch.zeros(3)
    header = {"options": text, "digest:mean": digest(mean)}
    save_file({"mean": mean}, path, metadata={**header, "metadata-digest": fingerprint(header)})
    with pytest.raises(ValueError, match="eraser has metadata that is not JSON"):
        Eraser.load(path)


@dataclass
class Remembering(Eraser):
    """A user's eraser that keeps the labels of its last call in an attribute that it does not declare."""

    mean: Tensor
    num_classes: int

    @classmethod
    def from_moments(cls, moments: ClassMoments):
        return cls(moments.mean, moments.num_classes)

    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:
        self.seen = z
        return x


def test_what_is_no_field_is_not_lost_in_silence(digits, tmp_path: Path) -> None:
    """An attribute that is not declared could not be checked when it is loaded."""
    x, z = digits
    eraser = Remembering.fit(x, z)
    eraser.save(tmp_path / "before")
    assert torch.equal(Eraser.load(tmp_path / "before").mean, eraser.mean)
    eraser(x, z)  # sets `seen`
    with pytest.raises(
        ValueError, match="Remembering.seen is not a field of the dataclass: declare it so that it is saved"
    ):
        eraser.save(tmp_path / "after")
