"""Splits belong to the dataset: stratified, disjoint, the same every time."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from erasure.dataset import LabelledImages, RawImages
from erasure.datasets.class_subset import positions
from erasure.datasets.digits import Digits
from erasure.splits import splits, stratified_split


@given(
    labels=st.lists(st.integers(0, 4), min_size=2, max_size=200), share=st.floats(0.01, 0.99), seed=st.integers(0, 9)
)
def test_stratified_split_takes_every_class_in_proportion(labels: list[int], share: float, seed: int) -> None:
    z = torch.tensor(labels)
    size = round(share * len(z))
    rest, held_out = stratified_split(z, size, seed)
    assert len(held_out) == size
    assert sorted([*rest.tolist(), *held_out.tolist()]) == list(range(len(z)))
    for j in set(labels):
        exact = share_of(z, j) * size
        assert abs(int((z[held_out] == j).sum()) - exact) < 1 + 1e-9


def share_of(z: torch.Tensor, j: int) -> float:
    return int((z == j).sum()) / len(z)


def test_digits_splits(digits_source: Digits) -> None:
    raw = digits_source.load()
    parts = splits(digits_source, raw)
    assert {name: len(part) for name, part in parts.items()} == {"train": 1295, "validation": 143, "test": 359}
    again = splits(digits_source, raw)
    assert all(torch.equal(parts[name].images, again[name].images) for name in parts)
    other = splits(dataclasses.replace(digits_source, split_seed=1), raw)
    assert not torch.equal(parts["test"].images, other["test"].images)


def test_an_official_test_split_is_used_as_it_is(digits_source: Digits) -> None:
    raw = digits_source.load()
    official = raw.train[torch.arange(50)]
    parts = splits(digits_source, dataclasses.replace(raw, test=official))
    assert torch.equal(parts["test"].images, official.images)
    assert len(parts["train"]) + len(parts["validation"]) == 1797


def test_sizes_that_do_not_fit_are_refused(digits_source: Digits) -> None:
    raw = digits_source.load()
    for size in (5000, 1438, 0):
        with pytest.raises(ValueError, match=f"validation_size={size}: digits has 1438 training examples"):
            splits(dataclasses.replace(digits_source, validation_size=size), raw)
    for fraction in (1.5, -0.1, float("nan"), 1e-9, 0.999999):
        with pytest.raises(
            ValueError, match=f"test_fraction={fraction}: digits has no official test split; of its 1,797"
        ):
            splits(dataclasses.replace(digits_source, test_fraction=fraction), raw)
    alone = dataclasses.replace(raw, train=raw.train[torch.arange(1)], test=raw.train)
    with pytest.raises(ValueError, match="validation_size=1: digits has 1 training examples"):
        splits(digits_source, alone)
    pair = splits(digits_source, dataclasses.replace(alone, train=raw.train[torch.arange(2)]))
    assert (len(pair["train"]), len(pair["validation"])) == (1, 1)


def test_labels_that_no_class_has_are_refused(digits_source: Digits) -> None:
    images = torch.zeros(4, 1, 2, 2)
    raw = RawImages(LabelledImages(images, torch.tensor([0, 1, 2, 0])), None, ("a", "b"))
    with pytest.raises(ValueError, match="labels from 0 to 2, but 2 classes"):
        splits(digits_source, raw)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda z: z[:40], r"has 50 examples and labels of type torch.int64 and shape \[40\]: need one label for each"),
        (lambda z: z.double(), r"labels of type torch.float64 and shape \[50\]: need .* as torch.int64"),
        (lambda z: z[:, None], r"shape \[50, 1\]: need one label"),
    ],
)
@pytest.mark.parametrize("split", ["train", "test"])
def test_labels_that_do_not_match_the_examples_are_refused(
    split: str, change, said: str, digits_source: Digits
) -> None:
    raw = digits_source.load()
    wrong = LabelledImages(raw.train.images[:50], change(raw.train.labels[:50]))
    with pytest.raises(ValueError, match=said):
        splits(digits_source, dataclasses.replace(raw, **{split: wrong}))


def test_what_is_left_over_goes_to_the_largest_remainders() -> None:
    z = torch.tensor([0] * 7 + [1] * 3)
    for size, expected in ((1, [1, 0]), (2, [1, 1]), (4, [3, 1]), (6, [4, 2])):
        held_out = stratified_split(z, size, 0)[1]
        assert [int((z[held_out] == j).sum()) for j in (0, 1)] == expected


def test_splits_never_move(digits_source: Digits) -> None:
    """Results are compared over years; these images were drawn in 2026."""
    where = positions(digits_source, digits_source.load())
    assert {name: index[:6].tolist() for name, (index, _) in where.items()} == {
        "train": [0, 3, 4, 5, 7, 8],
        "validation": [15, 36, 52, 55, 64, 72],
        "test": [1, 2, 6, 10, 13, 16],
    }
