"""The optimiser is the library's, in flat buffers; its averages are read without touching the training."""

import pytest
import torch
from schedulefree import AdamWScheduleFree

from train.schedule_free import ScheduleFree

SHAPES = {"a.weight": (2, 9, 7), "a.bias": (2, 9), "b.weight": (2, 4, 9), "b.bias": (2, 4)}
LARGE = SHAPES | {
    "a.weight": (2, 363, 363),
    "b.weight": (2, 363, 364),
}  # updated apart, in unequal pieces
FACTORS = {"a.weight": 1.0, "a.bias": 1.0, "b.weight": 0.25, "b.bias": 1.0}


def draw(shapes: dict[str, tuple[int, ...]] = SHAPES, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}


def gradients(weights: dict[str, torch.Tensor], target: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    loss = sum(((weight - target[name]) ** 4).sum() for name, weight in weights.items())
    assert isinstance(loss, torch.Tensor)
    return torch.autograd.grad(loss, list(weights.values()))


def steps(optimizer: ScheduleFree, target: dict[str, torch.Tensor], count: int) -> None:
    for _ in range(count):
        optimizer.step(gradients(optimizer.weights, target))


@pytest.mark.parametrize(("weight_decay", "power"), [(0.0, 0.0), (0.1, 0.0), (0.1, 8.0)])
@pytest.mark.parametrize("factors", [None, FACTORS], ids=["one_rate", "two_rates"])
@pytest.mark.parametrize("shapes", [SHAPES, LARGE], ids=["together", "apart"])
def test_it_computes_what_the_library_computes(
    weight_decay: float,
    power: float,
    factors: dict[str, float] | None,
    shapes: dict[str, tuple[int, ...]],
) -> None:
    start, target = draw(shapes), draw(shapes, seed=1)
    steps_of_warmup = 40 if shapes is SHAPES else 10
    options = {"lr": 0.03, "betas": (0.9, 0.99), "warmup_steps": steps_of_warmup}
    ours, on_device = (
        ScheduleFree(start, factors, weight_decay=weight_decay, average_power=power, **options) for _ in range(2)
    )
    theirs = {name: weight.clone().requires_grad_() for name, weight in start.items()}
    groups = []
    for factor in (1.0, 0.25) if factors else (1.0,):
        chosen = [theirs[name] for name in theirs if (factors or {}).get(name, 1.0) == factor]
        # decay does not scale with the factor, and the library multiplies it by the group's learning rate
        groups.append({"params": chosen, "lr": 0.03 * factor, "weight_decay": weight_decay / factor})
    library = AdamWScheduleFree(groups, r=power, **options)
    library.train()
    for _ in range(3 * steps_of_warmup):
        for name, gradient in zip(theirs, gradients(theirs, target), strict=True):
            theirs[name].grad = gradient
        library.step()
        steps(ours, target, 1)
        on_device.step_on_device(gradients(on_device.weights, target), on_device.next_coefficients())
    for name, weight in ours.weights.items():
        torch.testing.assert_close(weight, theirs[name], rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(on_device.weights[name], weight, rtol=1e-11, atol=1e-11)
    averaged = ours.averaged()
    library.eval()
    for name, average in averaged.items():
        torch.testing.assert_close(average, theirs[name].detach(), rtol=1e-11, atol=1e-11)
        assert not torch.equal(average, ours.weights[name])


def test_reading_the_average_changes_nothing() -> None:
    target = draw(seed=1)
    read, unread = (ScheduleFree(draw(), lr=0.1, warmup_steps=5) for _ in range(2))
    assert all(torch.equal(average, read.weights[name]) for name, average in read.averaged().items())  # before a step
    for _ in range(4):
        steps(read, target, 7)
        steps(unread, target, 7)
        read.averaged()
    assert all(torch.equal(weight, unread.weights[name]) for name, weight in read.weights.items())


def test_the_initial_weights_are_copied() -> None:
    start = draw()
    copies = {name: weight.clone() for name, weight in start.items()}
    steps(ScheduleFree(start, lr=0.1), draw(seed=1), 3)
    assert all(torch.equal(weight, copies[name]) for name, weight in start.items())


def test_members_that_stay_go_on_as_if_the_others_had_never_been_there() -> None:
    start, target = draw(), draw(seed=1)
    second, second_target = ({name: weight[1:] for name, weight in of.items()} for of in (start, target))
    options = {"lr": 0.1, "warmup_steps": 3, "weight_decay": 0.1}
    together, alone = (ScheduleFree(w, FACTORS, **options) for w in (start, second))
    steps(together, target, 5)
    steps(alone, second_target, 5)
    together.keep_members(torch.tensor([1]))
    steps(together, second_target, 5)
    steps(alone, second_target, 5)
    for name, weight in together.weights.items():
        assert torch.equal(weight, alone.weights[name])
        assert torch.equal(together.averaged()[name], alone.averaged()[name])


def test_a_restored_optimiser_goes_on_to_the_bit() -> None:
    target = draw(seed=1)
    options = {"lr": 0.1, "warmup_steps": 8}
    undisturbed = ScheduleFree(draw(), FACTORS, **options)
    other = ScheduleFree(draw(), FACTORS, lr=0.1)
    steps(undisturbed, target, 5)
    tensors, numbers = undisturbed.state()
    saved = {name: tensor.clone() for name, tensor in tensors.items()}
    steps(undisturbed, target, 5)
    restored = ScheduleFree(draw(seed=3), FACTORS, **options)
    restored.restore(saved, numbers)
    steps(restored, target, 5)
    steps(other, target, 10)
    for name, weight in undisturbed.weights.items():
        assert torch.equal(weight, restored.weights[name])
        assert not torch.equal(weight, other.weights[name])  # it would be noticed
