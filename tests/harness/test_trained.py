"""Trainings that are said to be stuck, and the sharpest fall in words."""

from harness.trained import Endings, SharpDrops, untrained


def test_trainings_are_counted_that_gained_nothing() -> None:
    some, older = Endings(epochs=[4, 5], untrained=[True, False]), Endings(epochs=[4, 5])
    assert untrained([some, some, older]) == "2 of 4"
    assert untrained([older, Endings(epochs=[3], untrained=[False])]) == ""


def test_a_drop_is_told_where_it_is_known() -> None:
    for bits, epoch, told in (
        ([1.0, 1.5], [3, 6], "1.25 at epoch 4"),
        ([0.0, 1.5], [None, 6], "0.75 at epoch 6"),
        ([0.0], [None], "0.00"),
    ):
        assert f"{SharpDrops(window_epochs=5, bits=bits, epoch=[*epoch])}" == told
