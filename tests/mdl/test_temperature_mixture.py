"""The mixture over temperatures: a code like any other, that learns how sure to be."""

import math

import pytest
import torch
import torch.nn.functional as F

from mdl.temperature_mixture import INVERSE_TEMPERATURES, TemperatureMixture

CPU = torch.device("cpu")
BITS = math.log2(math.e)


def batches(scale: float, count: int = 40, members: int = 2) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Labels drawn from softmax of logits [S, 16, 5], which a network then states `scale` times as large."""
    generator, drawn = torch.Generator().manual_seed(0), []
    for _ in range(count):
        logits = 2 * torch.randn(members, 16, 5, generator=generator)
        z = logits.softmax(-1).flatten(0, 1).multinomial(1, generator=generator).view(members, 16)
        drawn.append((scale * logits, z))
    return drawn


def test_it_is_a_probability_over_labels() -> None:
    mixture = TemperatureMixture(2, CPU)
    for logits, z in batches(3.0, 4):
        mixture.coded(logits, z)
    logits, _ = batches(3.0, 1)[0]
    nats = torch.stack([mixture.nats(logits, torch.full((2, 16), label)) for label in range(5)])
    torch.testing.assert_close(nats.neg().exp().sum(0), torch.ones(2, 16, dtype=torch.float64))


def test_batches_cost_what_the_mixture_of_whole_codes_costs() -> None:
    """Bayes' rule, batch by batch, of codes that each keep one temperature: at most log 17 above the best of them."""
    drawn, mixture = batches(2.5), TemperatureMixture(2, CPU)
    paid = sum(mixture.coded(logits[:, i : i + 1], z[:, i : i + 1]) for logits, z in drawn for i in range(16))
    assert isinstance(paid, torch.Tensor)
    alone = torch.stack([
        sum((F.cross_entropy((beta * x.double()).mT, z, reduction="none").sum(1) for x, z in drawn), torch.zeros(2))
        for beta in INVERSE_TEMPERATURES
    ])  # fmt: skip
    torch.testing.assert_close(paid[:, 0], math.log(len(INVERSE_TEMPERATURES)) - alone.neg().logsumexp(0))
    assert (paid[:, 0] <= alone.min(0).values + math.log(len(INVERSE_TEMPERATURES))).all()
    whole = TemperatureMixture(2, CPU)
    for logits, z in drawn:  # a batch of 16 teaches as much as its 16 labels one by one
        whole.coded(logits, z)
    torch.testing.assert_close(whole.log_weights, mixture.log_weights)


def test_it_finds_the_temperature_of_a_network_that_is_too_sure() -> None:
    drawn, mixture = batches(4.0, 80), TemperatureMixture(2, CPU)
    for logits, z in drawn[:40]:
        mixture.coded(logits, z)
    inverse_temperatures = [INVERSE_TEMPERATURES[int(i)] for i in mixture.log_weights.argmax(1)]
    assert inverse_temperatures == [pytest.approx(0.25)] * 2
    raw = torch.stack([F.cross_entropy(x.mT, z) for x, z in drawn[40:]]).mean()
    calibrated = torch.stack([mixture.nats(x, z) for x, z in drawn[40:]]).mean()
    assert float(calibrated) < 0.7 * float(raw)


def test_scoring_does_not_learn() -> None:
    mixture, (logits, z) = TemperatureMixture(2, CPU), batches(2.0, 1)[0]
    first = mixture.nats(logits, z)
    assert torch.equal(mixture.nats(logits, z), first)
    assert torch.equal(mixture.coded(logits, z), first)
    assert not torch.equal(mixture.nats(logits, z), first)


def test_a_network_that_says_nothing_costs_log2_k_to_the_last_digit() -> None:
    mixture = TemperatureMixture(2, CPU)
    for _, z in batches(0.0):
        bits = mixture.coded(torch.zeros(2, 16, 5), z) * BITS
        torch.testing.assert_close(bits, torch.full_like(bits, math.log2(5)), rtol=1e-14, atol=0)
