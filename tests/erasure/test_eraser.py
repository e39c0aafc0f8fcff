"""An eraser of one's own: what it lacks is named at once, and labels come only where they are declared."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from erasure import (
    AlfQleaceEraser,
    ClassMoments,
    Eraser,
    LeaceEraser,
    OracleLeaceEraser,
    PublishedGradientEraser,
    QleaceEraser,
    RandomEditEraser,
)
from erasure.pipeline import erased_dataset
from erasure.store.cache import Cache


@dataclass
class Whole(Eraser):
    """The eraser of docs/tutorials/extending.md."""

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


def test_a_subclass_written_as_the_guide_says_erases(digits) -> None:
    x, z = digits
    erased = Whole.fit(x, z, shrink=0.0)(x)
    torch.testing.assert_close(erased, x.mean(0).expand_as(x))


@pytest.mark.parametrize("eraser", [WithoutFields, WithoutInstance, OfOtherMoments])
def test_what_is_missing_is_named_as_soon_as_it_is_fitted(
    digits, digits_source, tmp_path, eraser: type[Eraser]
) -> None:
    message = rf"{eraser.__name__}.from_moments: return an instance of the class, a dataclass with the fields mean"
    with pytest.raises(ValueError, match=message):
        eraser.fit(*digits)
    with pytest.raises(ValueError, match=message):
        erased_dataset(digits_source, eraser, {}, dtype=torch.float32, cache=Cache(tmp_path))


def test_a_map_to_another_shape_is_named(digits) -> None:
    with pytest.raises(ValueError, match=r"Flattening.transform made \[64\] of \[1797, 64\]: keep the shape"):
        Flattening.fit(*digits)(digits[0])


def test_labels_reach_only_those_that_declare_them(digits) -> None:
    x, z = digits
    blind, labelled = Whole.fit(x, z), Labelled.fit(x, z)
    blind(x, z)
    labelled(x, z)
    assert blind.seen is None
    assert labelled.seen is not None
    assert torch.equal(labelled.seen, z)
    with pytest.raises(ValueError, match="Labelled maps each class differently: pass the labels z"):
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
