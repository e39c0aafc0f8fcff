"""The averaged weights are the library's, read without touching the training; members can leave."""

import torch
from schedulefree import AdamWScheduleFree

from train.optimizer import ScheduleFree


def problem(members: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(members, 4, generator=generator, dtype=torch.float64)
    return weight, torch.randn(members, 4, generator=generator, dtype=torch.float64)


def steps(optimizer: torch.optim.Optimizer, weight: torch.Tensor, target: torch.Tensor, count: int) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        ((weight - target) ** 4).sum().backward()
        optimizer.step()


def test_reading_the_average_changes_nothing_and_agrees_with_the_library() -> None:
    (start, target), (other, _) = problem(2), problem(2)
    weight, library_weight = start.requires_grad_(), other.requires_grad_()
    ours = ScheduleFree({"weight": weight}, lr=0.1, warmup_steps=5, weight_decay=0.1)
    library = AdamWScheduleFree([library_weight], lr=0.1, warmup_steps=5, weight_decay=0.1)
    ours.train()
    library.train()
    assert torch.equal(ours.averaged()["weight"], weight)  # before the first step
    for _ in range(4):
        steps(ours, weight, target, 7)
        steps(library, library_weight, target, 7)
        ours.averaged()
        assert torch.equal(weight, library_weight)
    average = ours.averaged()["weight"]
    library.eval()
    torch.testing.assert_close(average, library_weight.detach(), rtol=1e-14, atol=1e-14)
    assert not torch.equal(average, weight)


def test_members_that_stay_go_on_as_if_the_others_had_never_been_there() -> None:
    weight, target = problem(3)
    together, alone = weight.clone().requires_grad_(), weight[1:2].clone().requires_grad_()
    optimizer, single = (ScheduleFree({"weight": w}, lr=0.1, warmup_steps=3) for w in (together, alone))
    optimizer.train()
    single.train()
    steps(optimizer, together, target, 5)
    steps(single, alone, target[1:2], 5)
    kept = optimizer.keep_members(torch.tensor([1]))["weight"]
    steps(optimizer, kept, target[1:2], 5)
    steps(single, alone, target[1:2], 5)
    assert torch.equal(kept, alone)
    assert torch.equal(optimizer.averaged()["weight"], single.averaged()["weight"])
