"""The linearised network without sets of examples, against the network that is trained on what is left alone."""

from dataclasses import replace

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
