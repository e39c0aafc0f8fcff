"""Orders in which examples are dropped."""

import torch
from torch import Tensor

from sample_info.summaries.orders import bottom, bottom_iterative, kept, random, top

SCORES = torch.tensor([3.0, 1.0, 2.0, 1.0, 5.0])


def test_orders_follow_the_scores() -> None:
    assert bottom(SCORES).tolist() == [1, 3, 2, 0, 4]
    assert top(SCORES).tolist() == [4, 0, 2, 1, 3]
    assert sorted(random(9, 0).tolist()) == list(range(9))
    assert torch.equal(random(9, 0), random(9, 0))
    assert not torch.equal(random(9, 0), random(9, 1))
    assert kept(bottom(SCORES), 0.4).nonzero().flatten().tolist() == [0, 2, 4]
    assert kept(bottom(SCORES), 0.0).all()


def test_scoring_again_keeps_one_of_two_that_are_alike() -> None:
    values = torch.tensor([0.0, 0.0, 5.0, 5.0, 3.0])

    def unique_information(left: Tensor) -> Tensor:
        distances = (values[left][:, None] - values[left][None]).abs() + torch.diag(torch.full((len(left),), torch.inf))
        return distances.min(1).values.nan_to_num(posinf=9.0)

    iterative = bottom_iterative(unique_information, 5, fraction=0.2)
    assert sorted(iterative.tolist()) == [0, 1, 2, 3, 4]
    assert set(values[kept(iterative, 0.4)].tolist()) == {0.0, 3.0, 5.0}
    once = bottom(unique_information(torch.arange(5)))
    assert set(values[kept(once, 0.4)].tolist()) != {0.0, 3.0, 5.0}  # the control: scored once, both go


def test_scoring_once_is_the_whole_fraction() -> None:
    assert torch.equal(bottom_iterative(lambda left: SCORES[left], 5, fraction=1.0), bottom(SCORES))


def test_no_scores_are_computed_beyond_the_last_fraction_that_is_wanted() -> None:
    asked: list[int] = []

    def score(left: Tensor) -> Tensor:
        asked.append(len(left))
        return SCORES[left]

    order = bottom_iterative(score, 5, fraction=0.2, until=0.6)
    assert asked == [5, 4, 3]
    assert order.tolist() == [1, 3, 2, 0, 4]
    assert bottom_iterative(score, 5, fraction=0.2, until=0.0).tolist() == [0, 1, 2, 3, 4]
