import pytest
import torch

from erasure.classes import ClassSubset
from erasure.source import LabelledImages, RawImages
from sample_info.kinds import Groups, capped, groups_of

PARITY = Groups(("even", "odd"), torch.tensor([0, 1, 0, 1, 0, 1]))


def test_marks_and_crosses() -> None:
    third = Groups.marked(torch.tensor([True, False, False, True, False, False]), "third", "other")
    crossed = Groups.crossed([PARITY, third])
    assert crossed is not None
    assert [crossed.names[j] for j in crossed.of.tolist()] == [
        "even · third", "odd · other", "even · other", "odd · third", "even · other", "odd · other",
    ]  # fmt: skip
    assert Groups.crossed([]) is None
    nobody = Groups.marked(torch.zeros(6, dtype=torch.bool), "nobody", "all")
    alone = Groups.crossed([nobody])
    assert alone is not None
    assert alone.names == ("all",)


def test_caps_are_kept_and_seeded() -> None:
    kept = capped(PARITY, {"odd": 1}, seed=0)
    assert kept is not None
    assert len(kept) == 4
    assert {0, 2, 4} < set(kept.tolist())
    drawn = {tuple(found.tolist()) for seed in range(20) if (found := capped(PARITY, {"odd": 1}, seed)) is not None}
    assert len(drawn) == 3
    assert capped(PARITY, {}, seed=0) is None
    with pytest.raises(ValueError, match="no group third; there are even, odd"):
        capped(PARITY, {"third": 1}, seed=0)
    with pytest.raises(ValueError, match="merge classes"):
        capped(None, {"third": 1}, seed=0)


def test_groups_come_from_merged_classes_and_from_parts_of_a_mixture(digits_source) -> None:
    train = LabelledImages(torch.zeros(5, 1, 2, 2), torch.tensor([0, 1, 2, 1, 0]))
    whole = RawImages(train, None, ("a", "b", "c"))
    index = torch.tensor([1, 2, 4])
    subset = ClassSubset.of(digits_source, [[0, 1], 2])
    assert groups_of(digits_source, whole, index) is None
    merged = groups_of(subset, whole, index)
    assert merged is not None
    assert [merged.names[j] for j in merged.of.tolist()] == ["b", "c", "a"]
    mixture = RawImages(train, None, ("a", "b", "c"), parts={"first": 2, "second": 3})
    both = groups_of(subset, mixture, index)
    assert both is not None
    assert [both.names[j] for j in both.of.tolist()] == ["first · b", "second · c", "second · a"]
