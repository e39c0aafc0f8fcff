"""The linearised network without sets of examples, against the network that is trained on what is left alone."""

from dataclasses import replace
from itertools import combinations

import pytest
import torch

from models.tangent.jacobian import jacobian, network_outputs
from models.tangent.kernel import ntk
from sample_info.leave_one_out_effects import functional_information
from sample_info.linearized.descent import LinearizedDescent
from sample_info.linearized.dynamics import LinearizedDynamics, leave_one_out
from sample_info.linearized.network import LinearizedNetwork
from tests.sample_info.linearized.test_dynamics import descended
from tests.sample_info.networks import small_mlp

DESCENT = LinearizedDescent(learning_rate=0.05, steps=60, weight_decay=0.4)
LEFT = torch.tensor([0, 3, 4, 8, 11])  # of 12


@pytest.mark.parametrize("steps", [300, "converged"])
@pytest.mark.parametrize("k", [1, 3])
def test_without_sets_it_predicts_what_training_on_the_others_does(k: int, steps) -> None:
    descent = LinearizedDescent(learning_rate=0.02, steps=steps, weight_decay=1.0)
    halved = LinearizedDescent(learning_rate=0.01, steps=steps, weight_decay=1.0)  # of the mean over 6 of 12
    problem = small_mlp(k).problem(descent)
    network = LinearizedNetwork(problem, problem.kernels())
    on_half = replace(network, problem=replace(problem, descent=halved))
    sets = torch.stack([torch.randperm(12, generator=torch.Generator().manual_seed(s))[:6] for s in range(5)])
    predictions = network.without(sets)
    assert predictions.shape == (5, 5, k)
    for removed, outputs in zip(sets, predictions, strict=True):
        left = torch.ones(12, dtype=torch.bool).index_fill(0, removed, value=False).nonzero().squeeze(1)
        torch.testing.assert_close(outputs, on_half.predictions_from(left), rtol=1e-8, atol=1e-10)
    parts = replace(network, problem=replace(problem, memory_bytes=1.0)).without(sets)  # a set at a time
    torch.testing.assert_close(parts, predictions, rtol=1e-12, atol=1e-13)
    single = network.without(torch.arange(12)[:, None])
    effects, _ = network.left_out(torch.arange(12))
    torch.testing.assert_close(single, network.trained_held_out - effects.outputs, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("k", [1, 3])
def test_a_part_of_the_kernel_is_the_kernel_of_the_part(k: int) -> None:
    """Predictions and scores against the command's own steps from scratch on the examples that are left."""
    net = small_mlp(k)
    whole = LinearizedNetwork(net.problem(DESCENT), ntk(net.model, net.weights, net.x, net.held_out))
    alone = ntk(net.model, net.weights, net.x[LEFT], net.held_out)
    initial = network_outputs(net.model, net.weights, net.x[LEFT])
    dynamics = LinearizedDynamics(alone.train, initial - net.y[LEFT], DESCENT)
    predicted = dynamics.predictions(whole.initial_held_out, alone.held_out)
    torch.testing.assert_close(whole.predictions_from(LEFT), predicted, rtol=1e-10, atol=1e-12)
    scores = functional_information(leave_one_out(dynamics, alone.held_out), 0.5)
    torch.testing.assert_close(whole.functional_information(LEFT, 0.5), scores, rtol=1e-10, atol=1e-15)
    of_all = functional_information(leave_one_out(whole.dynamics, whole.kernels.held_out), 0.5)
    assert ((of_all[LEFT] - scores).abs() > 0.1 * scores).all()  # what others told is unique now


@pytest.mark.parametrize("k", [1, 3])
def test_a_thinned_network_is_trained_on_the_mean_of_all_sets_that_lack_as_many_examples(k: int) -> None:
    """Descend plainly, each example with the fraction of the sets that have it; then without example 4."""
    net = small_mlp(k)
    problem = net.problem(DESCENT)
    network = LinearizedNetwork(problem, problem.kernels())
    sets = list(combinations(range(12), 7))
    weight = sum(4 in subset for subset in sets) / len(sets)
    j, held_out = (jacobian(net.model, problem.weights, x) for x in (problem.x, problem.held_out))
    weighted, residual = weight**0.5 * j, weight**0.5 * (network.initial - problem.y)
    change = descended(weighted, residual, DESCENT, 12)
    others = torch.arange(12) != 4
    without = descended(weighted[others], residual[others], DESCENT, 12)
    thinned = network.thinned(5)
    torch.testing.assert_close(thinned.trained_held_out, network.initial_held_out + held_out @ change)
    assert not torch.allclose(network.trained_held_out, thinned.trained_held_out, rtol=1e-3)
    effects, left_out = thinned.left_out(torch.tensor([4]))
    torch.testing.assert_close(left_out[0], network.initial[4] + j[4] @ without)
    torch.testing.assert_close(effects.outputs[0], held_out @ (change - without))
    everything = thinned.all_left_out()
    torch.testing.assert_close(everything.outputs[4], effects.outputs[0], rtol=1e-8, atol=1e-12)
    assert float(everything.weight[4]) == pytest.approx(float((change - without).square().sum()), rel=1e-8)
