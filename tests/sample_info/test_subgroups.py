import torch

from erasure.dataset import LabelledImages, RawImages
from erasure.datasets.class_subset import ClassSubset
from sample_info.subgroups import Subgroups, subgroups_of

PARITY = Subgroups(("even", "odd"), torch.tensor([0, 1, 0, 1, 0, 1]))


def test_marks_and_crosses() -> None:
    third = Subgroups.marked(torch.tensor([True, False, False, True, False, False]), "third", "other")
    crossed = PARITY.crossed(third)
    assert [crossed.names[j] for j in crossed.of.tolist()] == [
        "even · third", "odd · other", "even · other", "odd · third", "even · other", "odd · other",
    ]  # fmt: skip
    nobody = Subgroups.marked(torch.zeros(6, dtype=torch.bool), "nobody", "all")
    assert nobody.present().names == ("all",)
    alike = Subgroups(("",), torch.zeros(6, dtype=torch.int64))
    assert alike.masks() == {}
    assert alike.crossed(PARITY).names == PARITY.names


def test_groups_come_from_merged_classes_and_from_parts_of_a_mixture(digits_source) -> None:
    train = LabelledImages(torch.zeros(5, 1, 2, 2), torch.tensor([0, 1, 2, 1, 0]))
    whole = RawImages(train, None, ("a", "b", "c"))
    index = torch.tensor([1, 2, 4])
    subset = ClassSubset.of(digits_source, [[0, 1], 2])
    assert subgroups_of(digits_source, whole, index).names == ("",)
    merged = subgroups_of(subset, whole, index)
    assert [merged.names[j] for j in merged.of.tolist()] == ["b", "c", "a"]
    mixture = RawImages(train, None, ("a", "b", "c"), parts={"first": 2, "second": 3})
    both = subgroups_of(subset, mixture, index)
    assert [both.names[j] for j in both.of.tolist()] == ["first · b", "second · c", "second · a"]
