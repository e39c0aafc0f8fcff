"""Temperatures: the ones that the logits were made with, and next to none from few examples."""

import math

import pytest
import torch
from torch import Tensor

from train.ensemble import temperatures


def drawn(n: int, by: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits of which softmax(logits / by) is the truth, and labels drawn from it."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(1, n, 4, generator=generator) * 2
    labels = torch.multinomial(logits[0].softmax(1), 1, generator=generator).T
    return logits * by, labels


@pytest.mark.parametrize("by", [0.3, 1.0, 5.0])
def test_the_temperature_that_logits_were_made_with_is_found(by: float) -> None:
    logits, labels = drawn(20_000, by)
    assert float(temperatures(logits, labels)) == pytest.approx(by, rel=0.05)


def test_it_is_the_minimum_of_the_documented_loss_for_each_member() -> None:
    logits, labels = (torch.cat([a, b]) for a, b in zip(drawn(60, 0.5), drawn(60, 3.0, seed=1), strict=True))
    fitted = temperatures(logits, labels)

    def loss(member: int, temperature: float) -> float:
        scaled = logits[member].double() / temperature
        fit = torch.nn.functional.cross_entropy(scaled, labels[member], reduction="sum")
        return float(fit) + math.log(temperature) ** 2 / 2

    for member, best in enumerate(fitted.tolist()):
        assert loss(member, best) < min(loss(member, best * 1.02), loss(member, best / 1.02))


def test_a_few_examples_that_are_all_right_do_not_make_it_sure() -> None:
    logits = 3 * torch.eye(3)[None]
    assert 0.2 < float(temperatures(logits, torch.arange(3)[None])) < 1


def test_logits_that_say_nothing_stay_as_they_are() -> None:
    assert float(temperatures(torch.zeros(1, 50, 3), torch.zeros(1, 50, dtype=torch.int64))) == pytest.approx(
        1, abs=1e-6
    )
