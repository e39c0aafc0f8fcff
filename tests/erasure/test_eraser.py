"""An eraser of one's own: what it lacks is named at once, and labels come only where they are declared."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from erasure import (
    AlfQleaceEraser,
    ClassMoments,
    Eraser,
    GradientEraser,
    LeaceEraser,
    OracleLeaceEraser,
    PublishedGradientEraser,
    QleaceEraser,
    RandomEditEraser,
)
from erasure.pipeline import erased_dataset
from erasure.store.cache import Cache
from erasure.store.checked_files import digest, fingerprint, load_tensors, save_tensors


@dataclass
class Whole(Eraser):
    """The eraser of docs/guide/extending.md."""

    mean: Tensor
    num_classes: int

    @classmethod
    def from_moments(cls, moments: ClassMoments, *, shrink: float = 0.5):
        cls.shrink = shrink
        return cls(moments.mean, moments.num_classes)

    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:
        self.seen = z
        return self.mean + self.shrink * (x - self.mean)


class Labelled(Whole):
    uses_labels = True


class WithoutFields(Whole):
    @classmethod
    def from_moments(cls, moments: ClassMoments, **_: object):
        return cls.__new__(cls)


class WithoutInstance(Whole):
    @classmethod
    def from_moments(cls, moments: ClassMoments, **_: object) -> Any:
        return moments.mean


class OfOtherMoments(Whole):
    @classmethod
    def from_moments(cls, moments: ClassMoments, **_: object):
        return cls(moments.means, moments.num_classes)


class Flattening(Whole):
    def transform(self, x: Tensor, z: Tensor | None) -> Tensor:
        return self.mean


class OneArgument(Whole):
    def transform(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return x


class WithoutMap(Eraser):
    @classmethod
    def from_moments(cls, moments: ClassMoments):
        return cls()


def test_a_subclass_written_as_the_guide_says_erases(digits) -> None:
    x, z = digits
    erased = Whole.fit(x, z, shrink=0.0)(x)
    torch.testing.assert_close(erased, x.mean(0).expand_as(x))


@pytest.mark.parametrize(
    ("eraser", "message"),
    [
        (WithoutFields, "WithoutFields has no mean and no num_classes: make it a dataclass with the fields"),
        (WithoutInstance, r"WithoutInstance.from_moments returned tensor.*: return an instance of the class"),
        (OfOtherMoments, r"OfOtherMoments has a mean of shape \[10, 64\] and num_classes=10: of these moments"),
        (OneArgument, r"OneArgument.transform must take \(self, x, z\)"),
        (WithoutMap, "WithoutMap does not define transform"),
    ],
)
def test_what_is_missing_is_named_as_soon_as_it_is_fitted(
    digits, digits_source, tmp_path, eraser: type[Eraser], message: str
) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        eraser.fit(*digits)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        erased_dataset(digits_source, eraser, {}, dtype=torch.float32, cache=Cache(tmp_path))


def test_fields_missing_after_from_moments_and_a_map_to_another_shape_are_named(digits) -> None:
    x, z = digits
    with pytest.raises(ValueError, match="WithoutFields has no mean"):
        WithoutFields.from_moments(ClassMoments.fit(x, z))(x)
    with pytest.raises(ValueError, match=r"Flattening.transform made \[64\] of \[1797, 64\]: keep the shape"):
        Flattening.fit(x, z)(x)


def test_labels_reach_only_those_that_declare_them(digits) -> None:
    x, z = digits
    blind, labelled = Whole.fit(x, z), Labelled.fit(x, z)
    blind(x, z)
    labelled(x, z)
    assert blind.seen is None
    assert labelled.seen is not None
    assert torch.equal(labelled.seen, z)
    with pytest.raises(ValueError, match="Labelled maps each class in its own way: pass the labels z"):
        labelled(x)


KEPT = (LeaceEraser, OracleLeaceEraser, QleaceEraser, AlfQleaceEraser, RandomEditEraser)


@pytest.mark.parametrize("kind", KEPT)
def test_an_eraser_outlives_its_process_and_moves(digits, kind: type[Eraser], tmp_path) -> None:
    x, z = digits
    eraser = kind.fit(x, z)
    eraser.save(tmp_path / "eraser.safetensors")
    for loaded in (Eraser.load(tmp_path / "eraser.safetensors"), kind.load(tmp_path / "eraser.safetensors")):
        assert type(loaded) is kind
        torch.testing.assert_close(loaded(x, z), eraser(x, z), rtol=0, atol=1e-13)  # strides may be others
        assert loaded.state_dict().keys() == eraser.state_dict().keys()
    single = eraser.to("cpu").to(torch.float32)
    assert all(tensor.dtype == torch.float32 for tensor in single.state_dict().values())
    assert not torch.equal(single(x, z), eraser(x, z))
    torch.testing.assert_close(single(x.float(), z), eraser(x.float(), z), rtol=0, atol=2e-5)
    assert repr(eraser).startswith(f"{kind.__name__}(d=64, k=10, erased_order={kind.erased_order}")
    assert len(repr(eraser)) < 120


def test_an_eraser_within_an_eraser_moves_with_it(digits) -> None:
    x, z = digits
    outer = PublishedGradientEraser.from_moments(ClassMoments.fit(x, z), weights=(0.01, 0.01, 1.0))
    moved = outer.to(torch.float32)
    assert {tensor.dtype for tensor in moved.leace.state_dict().values()} == {torch.float32}
    assert {tensor.dtype for tensor in outer.leace.state_dict().values()} == {torch.float64}


def test_integers_are_refused_and_fitting_takes_more_room_for_more_classes(digits) -> None:
    x, z = digits
    with pytest.raises(ValueError, match=r"x has dtype torch.int64: erased values are not integers"):
        LeaceEraser.fit(x, z)((16 * x).long())
    moments = 10 * 8.0 * 64**2  # bytes of one float64 matrix per class
    assert moments < LeaceEraser.fitting_bytes(64, 10) < QleaceEraser.fitting_bytes(64, 10)
    assert LeaceEraser.fitting_bytes(64, 20) > LeaceEraser.fitting_bytes(64, 10) + moments


def test_only_what_is_an_eraser_of_the_family_is_loaded(digits, tmp_path) -> None:
    x, z = digits
    LeaceEraser.fit(x, z).save(tmp_path / "eraser")
    with pytest.raises(ValueError, match=r"holds erasure\S+LeaceEraser: QleaceEraser.load reads erasure\S+Qleace"):
        QleaceEraser.load(tmp_path / "eraser")
    ClassMoments.fit(x, z).save(tmp_path / "moments")
    namesake = type("LeaceEraser", (LeaceEraser,), {"version": 1})
    assert type(Eraser.load(tmp_path / "eraser")) is LeaceEraser is not namesake
    with pytest.raises(ValueError, match="moments holds class moments"):
        Eraser.load(tmp_path / "moments")
    with pytest.raises(ValueError, match="GradientEraser has no map to store: save the erased examples"):
        GradientEraser.from_moments(ClassMoments.fit(x, z), weights=(1.0, 1.0, 1.0)).save(tmp_path / "no")


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
        ({"left": None}, "its field left is missing"),
        ({"mean": None}, "its field mean is missing"),
        ({"norms": None}, "its field norms is missing"),
        ({"transform": torch.ones(5)}, "it has 'transform', which is not one of its fields mean, num_classes"),
        ({"uses_labels": True}, "it has 'uses_labels', which is not one"),
        ({"mean": torch.arange(5)}, "its mean is of torch.int64: need floating numbers"),
        ({"mean": torch.full((5,), torch.nan)}, "its mean has values that are not finite"),
        ({"mean": torch.zeros(1, 5)}, r"its mean has shape \[1, 5\]: need \[d\] with d=5"),
        ({"mean": torch.zeros(0)}, r"its mean has shape \[0\]"),
        ({"mean": [0.0] * 5}, r"its mean is \(0.0, 0.0"),
        ({"left": torch.ones(5, 2).double()}, r"its right has shape \[\d, 5\]: need \[r, d\] with r=2, d=5"),
        ({"left": torch.ones(2, 5)}, r"its left has shape \[2, 5\]: need \[d, r\] with d=5"),
        ({"left": torch.ones(5)}, r"its left has shape \[5\]: need \[d, r\]"),
        ({"left": torch.ones(5, 3, dtype=torch.float32)}, "its left is of torch.float32: need floating numbers"),
        ({"right": "$(reboot)"}, r"its right is '\$\(reboot\)': need .*Tensor"),
        ({"num_classes": "3"}, "its num_classes is '3': need a whole number of at least 2"),
        ({"num_classes": True}, "its num_classes is True"),
        ({"num_classes": 1}, "its num_classes is 1"),
        ({"num_classes": 10**400}, "its num_classes is 1000"),
        ({"num_classes": torch.ones(3, 3)}, r"its num_classes is a tensor \[3, 3\] of torch.float32"),
        ({"norms": [1.0, "x"]}, r"its norms is \(1.0, 'x'\): need tuple\[float, ...\]"),
        ({"norms": {"a": 1}}, "its norms is {'a': 1}"),
        ({"norms": [10**400]}, r"its norms is \(1000"),
        ({"options": [1]}, "holds erasure.*AlfQleaceEraser: Eraser.load reads"),
        ({"eraser": ["x"]}, r"holds \['x'\]: Eraser.load reads"),
        ({"eraser": "os.system\n\x1b[2J"}, r"holds os.system\\n\\x1b\[2J: Eraser.load"),
        ({"eraser": "erasure.eraser.Eraser"}, "holds erasure.eraser.Eraser: Eraser.load reads"),
        (
            {"eraser": "erasure.projection_eraser.ProjectionEraser"},
            "holds erasure.*ProjectionEraser: Eraser.load reads",
        ),
        ({"eraser": "erasure.erasers.gradient.GradientEraser"}, "holds erasure.*GradientEraser: Eraser.load reads"),
        ({"eraser": "erasure.erasers.qleace.QleaceEraser"}, "is no QleaceEraser: it has '"),
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
    with pytest.raises(ValueError, match="eraser has metadata that are no JSON"):
        Eraser.load(path)


def test_what_is_no_field_is_not_lost_in_silence(digits, tmp_path: Path) -> None:
    """An attribute that is not declared could not be checked when it is loaded."""
    x, z = digits
    eraser = Whole.fit(x, z)
    eraser.save(tmp_path / "before")
    assert torch.equal(Eraser.load(tmp_path / "before").mean, eraser.mean)
    eraser(x, z)  # sets `seen`
    with pytest.raises(ValueError, match="Whole.seen is not a field of the dataclass: declare it, to be kept"):
        eraser.save(tmp_path / "after")


@pytest.mark.parametrize("kind", [LeaceEraser, QleaceEraser])
def test_it_erases_what_users_have(digits, kind: type[Eraser]) -> None:
    x, z = digits
    eraser = kind.fit(x, z)
    expected = eraser(x, z)
    array = eraser(x.numpy(), z.tolist())
    assert array.dtype == x.numpy().dtype
    assert torch.equal(torch.from_numpy(array), expected)
    row = eraser(x[3].flatten(), z[3])
    torch.testing.assert_close(row, expected[3].flatten(), rtol=0, atol=1e-13)
    tokens = slice(0, 1790)
    states, labels = x[tokens].view(179, 10, 64), z[tokens].view(179, 10)
    torch.testing.assert_close(eraser(states, labels), expected[tokens].view_as(states), rtol=0, atol=1e-13)
    for dtype in (torch.float16, torch.bfloat16):
        assert eraser(x.to(dtype), z).dtype == dtype
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(eraser(x, z).square().sum(), x)
    assert gradient.norm() > 0
    x.requires_grad_(False)
