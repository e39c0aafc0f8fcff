"""The linearised network without sets of examples, against the network that is trained on what is left alone."""

from dataclasses import replace
from itertools import combinations

import pytest
import torch

from sample_info.linearized.network import LinearizedNetwork
from sample_info.linearized.training import LinearizedDescent
from sample_info.problem import Problem
from tests.sample_info.networks import small_mlp


@pytest.mark.parametrize("steps", [300, "converged"])
@pytest.mark.parametrize("k", [1, 3])
def test_without_sets_it_predicts_what_training_on_the_others_does(k: int, steps) -> None:
    net = small_mlp(k)
    descent = LinearizedDescent(learning_rate=0.02, steps=steps, weight_decay=1.0, left_out_loss="mean")
    problem = Problem(net.model, net.weights, net.x, net.y, net.held_out, descent, 0, batch_size=8, memory_bytes=1e9)
    network = LinearizedNetwork(problem, problem.kernels())
    sets = torch.stack([torch.randperm(12, generator=torch.Generator().manual_seed(s))[:6] for s in range(5)])
    found = network.without(sets)
    assert found.shape == (5, 5, k)
    for removed, outputs in zip(sets, found, strict=True):
        left = torch.ones(12, dtype=torch.bool).index_fill(0, removed, value=False).nonzero().squeeze(1)
        torch.testing.assert_close(outputs, network.predictions_from(left), rtol=1e-8, atol=1e-10)
    parts = replace(network, problem=replace(problem, memory_bytes=1.0)).without(sets)  # a set at a time
    torch.testing.assert_close(parts, found, rtol=1e-12, atol=1e-13)
    single = network.without(torch.arange(12)[:, None])
    effects, _ = network.left_out(torch.arange(12))
    torch.testing.assert_close(single, network.trained_held_out - effects.outputs, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("weight_decay", [0.0, 0.5])
def test_effects_at_half_weight_are_what_examples_do_to_halves_on_average(weight_decay: float) -> None:
    net = small_mlp(1)
    descent = LinearizedDescent(learning_rate=0.05, steps=200, weight_decay=weight_decay)
    problem = Problem(net.model, net.weights, net.x, net.y, net.held_out, descent, 0, batch_size=8, memory_bytes=1e9)
    network = LinearizedNetwork(problem, problem.kernels())
    removed = torch.tensor([*combinations(range(12), 6)])  # all 924 halves
    kept = torch.ones(len(removed), 12, dtype=torch.float64).scatter_(1, removed, 0)
    outputs = network.without(removed).squeeze(2)
    average = (kept.T @ outputs - (1 - kept).T @ outputs) / (len(removed) / 2)  # Banzhaf's value among halves

    def distance(effects: torch.Tensor) -> float:
        """Of an account's shape, whatever its scale and, as halves are of one size, its mean over the examples."""
        a, b = ((part - part.mean(0)).flatten() for part in (effects.squeeze(2), average))
        return float(1 - (a @ b) / (a.norm() * b.norm()))

    whole, half = (distance(one.all_left_out().outputs) for one in (network, network.thinned(6)))
    assert half < 0.07
    assert half < whole / 2
