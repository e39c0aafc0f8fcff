from dataclasses import replace

import pytest
import torch
from torch import Tensor

from erasure.dataset import RawImages
from erasure.datasets.class_subset import ClassSubset, positions
from erasure.datasets.digits import Digits
from erasure.erasers.leace import LeaceEraser
from erasure.image_cache import raw_images, whole_images
from erasure.pipeline import erased_dataset
from erasure.store.cache import Cache


def test_a_subset_holds_its_classes_relabelled_in_their_order(
    digits_source: Digits, digits: tuple[Tensor, Tensor]
) -> None:
    x, z = digits
    raw = ClassSubset.of(digits_source, [9, 4]).load()
    assert raw.class_names == ("9", "4")
    assert torch.equal(raw.train.images[raw.train.labels == 1].double() / 16, x[z == 4])
    assert len(raw.train) == int(((z == 4) | (z == 9)).sum())


def test_several_classes_can_be_one(digits_source: Digits, digits: tuple[Tensor, Tensor]) -> None:
    x, z = digits
    subset = ClassSubset.of(digits_source, [[3, 5], 4])
    raw = subset.load()
    assert subset.merges
    assert not ClassSubset.of(digits_source, [3, 4]).merges
    assert raw.class_names == ("3+5", "4")
    assert torch.equal(raw.train.images[raw.train.labels == 0].double() / 16, x[(z == 3) | (z == 5)])
    assert int((raw.train.labels == 1).sum()) == int((z == 4).sum())
    assert subset.identity()["classes"] == [[3, 5], 4]


def test_classes_whose_names_are_other_numbers_are_named(digits_source: Digits, tmp_path, caplog) -> None:
    """Folders 0, 1, 10, 2 are sorted as words, so that class 2 is called 10."""

    class Words(Digits):
        def load(self) -> RawImages:
            raw = super().load()
            return replace(raw, class_names=("0", "1", "10", "2", *raw.class_names[4:]))

    words = Words(**vars(digits_source))
    raw = raw_images(ClassSubset.of(words, [2, 1]), Cache(tmp_path))
    assert raw.class_names == ("10", "1")
    assert caplog.messages == ["classes=[2, 1] of digits are called 10, 1"]
    caplog.clear()
    raw_images(ClassSubset.of(words, [1, 5]), Cache(tmp_path))
    raw_images(ClassSubset.of(digits_source, [2, 3]), Cache(tmp_path))
    assert caplog.messages == []


def test_its_eraser_sees_no_other_class(digits_source: Digits, tmp_path) -> None:
    subset = ClassSubset.of(digits_source, [4, 9])
    dataset = erased_dataset(subset, LeaceEraser, {"rank_tolerance": 1e-10}, dtype=torch.float64, cache=Cache(tmp_path))
    train = dataset.splits["train"]
    means = [train.images[train.labels == j].mean(0) for j in (0, 1)]
    torch.testing.assert_close(means[0], means[1], rtol=0, atol=1e-9)
    assert dataset.class_names == ("4", "9")


def test_its_identity_is_its_own(digits_source: Digits) -> None:
    identities = [ClassSubset.of(digits_source, classes).identity() for classes in ([4, 9], [9, 4], [3, 9])]
    assert all(a != b for a in identities for b in [digits_source.identity()])
    assert identities[0] != identities[1] != identities[2] != identities[0]
    assert identities[0]["name"] == "digits"


@pytest.mark.parametrize("classes", [None, [4, 9], [7, 0, 3]])
def test_positions_lead_back_to_the_datasets_own_images(digits_source, digits, classes, tmp_path) -> None:
    source = digits_source if classes is None else ClassSubset.of(digits_source, classes)
    dataset = erased_dataset(source, LeaceEraser, {"rank_tolerance": 1e-10}, dtype=torch.float64, cache=Cache(tmp_path))
    everything = positions(source, whole_images(source, Cache(tmp_path)))
    for name, part in dataset.splits.items():
        z = digits[1][everything[name][0]]
        expected = z if classes is None else torch.tensor([classes.index(int(label)) for label in z])
        assert torch.equal(part.labels, expected)
    together = torch.cat([index for index, _ in everything.values()])
    assert len(together.unique()) == len(together)
    if classes is None:
        assert len(together) == 1797


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        ([4], "at least two"),
        ([4, 4], "all different"),
        ([[4, 9], 9], "all different"),
        ([[], 4], "at least two"),
        ([4, 10], "classes 0 to 9"),
    ],
)
def test_classes_that_there_are_not_are_refused(digits_source: Digits, classes, said) -> None:
    with pytest.raises(ValueError, match=said):
        ClassSubset.of(digits_source, classes).load()
