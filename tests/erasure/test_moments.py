"""Class moments: exact, mergeable, and clear about bad input."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from erasure import ClassMoments


def random_data(seed: int, n: int = 60, d: int = 5, k: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z = torch.cat([torch.arange(k), torch.randint(k, (n - k,), generator=generator)])
    x = torch.randn(n, d, generator=generator, dtype=torch.float64) + z[:, None] * 10 + 100
    return x, z


def test_moments_are_the_textbook_ones() -> None:
    x, z = random_data(0)
    moments = ClassMoments.fit(x, z)
    for j in range(3):
        members = x[z == j]
        torch.testing.assert_close(moments.means[j], members.mean(0))
        torch.testing.assert_close(moments.covariances[j], torch.cov(members.T, correction=0))
    torch.testing.assert_close(moments.mean, x.mean(0))
    torch.testing.assert_close(moments.total, torch.cov(x.T, correction=0))
    one_hot = torch.nn.functional.one_hot(z).double()
    cross = (x - x.mean(0)).T @ (one_hot - one_hot.mean(0)) / len(x)
    torch.testing.assert_close(moments.cross, cross)


@given(seed=st.integers(0, 1000), cuts=st.lists(st.integers(0, 60), max_size=4), order=st.randoms())
def test_moments_by_merging_shards_are_moments_at_once(seed: int, cuts: list[int], order) -> None:
    x, z = random_data(seed)
    edges = sorted({0, *cuts, len(x)})
    shards = [ClassMoments(5, 3).update(x[a:b], z[a:b]) for a, b in itertools.pairwise(edges)]
    order.shuffle(shards)
    merged = ClassMoments(5, 3)
    for shard in shards:
        merged.merge(shard)
    at_once = ClassMoments.fit(x, z)
    torch.testing.assert_close(merged.counts, at_once.counts, rtol=0, atol=0)
    torch.testing.assert_close(merged.means, at_once.means, rtol=1e-13, atol=1e-12)
    torch.testing.assert_close(merged.covariances, at_once.covariances, rtol=1e-11, atol=1e-12)


def test_a_large_common_offset_costs_no_accuracy() -> None:
    x, z = random_data(0)
    shifted = ClassMoments.fit(x + 2.0**20, z)
    torch.testing.assert_close(shifted.covariances, ClassMoments.fit(x, z).covariances, rtol=1e-8, atol=1e-8)


def test_integer_images_and_image_shapes_are_accepted() -> None:
    x = torch.randint(0, 256, (20, 3, 2, 2), dtype=torch.uint8)
    z = torch.arange(20) % 2
    torch.testing.assert_close(ClassMoments.fit(x, z).mean, x.double().flatten(1).mean(0))


@pytest.mark.parametrize(
    ("x", "z", "complaint"),
    [
        (torch.ones(4, 5), torch.tensor([0, 1, 3, 1]), "label 3 is out of range: labels run from 0 to 2"),
        (torch.ones(4, 5), torch.tensor([0, 1, -1, 1]), "label -1 is out of range"),
        (torch.ones(4, 6), torch.tensor([0, 1, 2, 1]), r"shape \(4, 6\): expected \[n, ...\] with 5 values"),
        (torch.ones(5), torch.tensor([0, 1, 2, 1, 0]), r"shape \(5,\): expected \[n, ...\] with 5 values"),
        (torch.ones(4, 5), torch.tensor([0, 1, 2]), r"expected one label per example, \[4\]"),
        (torch.ones(4, 5), torch.tensor([0.0, 1, 2, 1]), "labels are integers"),
        (torch.full((4, 5), torch.nan), torch.tensor([0, 1, 2, 1]), "class 0 holds values that are not finite"),
        (torch.full((4, 5), torch.inf), torch.tensor([0, 1, 2, 1]), "class 0 holds values that are not finite"),
        (torch.full((4, 5), -torch.inf), torch.tensor([0, 1, 2, 1]), "class 0 holds values that are not finite"),
    ],
)
def test_bad_data_is_refused_by_name(x: torch.Tensor, z: torch.Tensor, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ClassMoments(5, 3).update(x, z)


def test_one_class_or_classes_without_examples_are_refused() -> None:
    with pytest.raises(ValueError, match="needs at least 2 classes"):
        ClassMoments.fit(torch.ones(3, 2), torch.zeros(3, dtype=torch.long))
    x, z = random_data(0)
    with pytest.raises(ValueError, match="class 3 has 0"):
        ClassMoments.fit(x, z, num_classes=4).require_examples()
    with pytest.raises(ValueError, match="cannot merge moments of 2 classes in 5 dimensions"):
        ClassMoments(5, 3).merge(ClassMoments(5, 2))


def test_one_number_per_example_still_needs_a_dimension_of_its_own() -> None:
    with pytest.raises(ValueError, match=r"shape \(4,\): expected \[n, ...\] with 1 values"):
        ClassMoments(1, 2).update(torch.ones(4), torch.tensor([0, 1, 0, 1]))
