"""Closed forms against plain gradient descent in weight space, and against one eigendecomposition per system."""

import math

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from models.tangent.jacobian import jacobian, network_outputs
from sample_info.linearized.descent import LinearizedDescent
from sample_info.linearized.dynamics import LinearizedDynamics, leave_one_out
from sample_info.linearized.leave_out_solvers import Method
from tests.sample_info import reference_dynamics
from tests.sample_info.networks import linearized, small_mlp, some_kernels

METHODS: tuple[Method, ...] = ("series", "resolvent")
DESCENTS = {
    "discrete": LinearizedDescent(learning_rate=0.05, steps=500),
    "one step": LinearizedDescent(learning_rate=0.05, steps=1),
    "decay": LinearizedDescent(learning_rate=0.05, steps=500, weight_decay=3.0),
    "converged": LinearizedDescent(learning_rate=0.05, steps="converged"),
    "converged, decay": LinearizedDescent(learning_rate=0.05, steps="converged", weight_decay=3.0),
}


def descended(j: Tensor, residual: Tensor, descent: LinearizedDescent, n: int) -> Tensor:
    """w - w_0, [p], by gradient descent on the linearised network, step by step. j: [n, k, p]."""
    change = torch.zeros(j.shape[-1], dtype=torch.float64)
    for _ in range(int(descent.steps)):
        errors = residual + j @ change
        gradient = (j * errors[..., None]).sum((0, 1)) + descent.weight_decay * change
        change = change - descent.learning_rate / n * gradient
    return change


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("name", ["discrete", "one step", "decay"])
def test_weights_and_predictions_are_those_of_gradient_descent(k: int, name: str) -> None:
    net, descent = small_mlp(k), DESCENTS[name]
    dynamics, held_out_kernel = linearized(net, descent)
    j, j_held_out = (jacobian(net.model, net.weights, x) for x in (net.x, net.held_out))
    initial = network_outputs(net.model, net.weights, net.x)
    initial_held_out = network_outputs(net.model, net.weights, net.held_out)
    change = descended(j, initial - net.y, descent, len(net.x))
    moved = torch.einsum("nkp,nk->p", j, dynamics.coefficients)
    torch.testing.assert_close(moved, change, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(dynamics.predictions(initial, dynamics.kernel), initial + j @ change)
    torch.testing.assert_close(
        dynamics.predictions(initial_held_out, held_out_kernel), initial_held_out + j_held_out @ change
    )

    others = torch.arange(len(net.x)) != 4
    without = change - descended(j[others], (initial - net.y)[others], descent, len(net.x))
    effects, self_effects = dynamics.effects(torch.tensor([4]), held_out_kernel)
    torch.testing.assert_close(self_effects[0], j[4] @ without)
    torch.testing.assert_close(effects.outputs[0], j_held_out @ without, rtol=1e-8, atol=1e-12)  # and their sign
    assert float(effects.weight) == pytest.approx(float(without @ without), rel=1e-9)
    assert float(effects.prediction) == pytest.approx(float((j_held_out @ without).square().sum(1).mean()), rel=1e-9)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("name", DESCENTS)
@pytest.mark.parametrize("method", METHODS)
def test_all_systems_at_once_are_each_system_alone(method: Method, k: int, name: str) -> None:
    kernel, held_out_kernel, residual = some_kernels(20, k)
    dynamics = LinearizedDynamics(kernel, residual, DESCENTS[name], method=method)
    torch.testing.assert_close(
        dynamics.coefficients, reference_dynamics.coefficients(kernel, residual, DESCENTS[name]), rtol=1e-8, atol=1e-10
    )
    effects, _ = dynamics.effects(torch.arange(20), held_out_kernel)
    fast = torch.stack([effects.weight, effects.prediction], 1)
    slow = torch.tensor(
        [reference_dynamics.change_without(i, kernel, held_out_kernel, residual, DESCENTS[name]) for i in range(20)],
        dtype=torch.float64,
    )
    torch.testing.assert_close(fast, slow, rtol=1e-8, atol=0)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("size", [2, 9])
@pytest.mark.parametrize("name", DESCENTS)
def test_any_set_at_once_is_training_without_it_alone(name: str, size: int, k: int) -> None:
    kernel, held_out_kernel, residual = some_kernels(20, k)
    descent = DESCENTS[name]
    dynamics = LinearizedDynamics(kernel, residual, descent)
    sets = torch.stack([torch.randperm(20, generator=torch.Generator().manual_seed(s))[:size] for s in range(3)])
    result = held_out_kernel @ dynamics.differences(sets)
    slow = torch.stack([removed_set(one, kernel, residual, descent) for one in sets], 1)
    torch.testing.assert_close(result, held_out_kernel @ slow, rtol=1e-8, atol=1e-10)
    single = dynamics.differences(sets.flatten())
    summed = (held_out_kernel @ single).view(len(result), 3, size).sum(-1)
    apart = float((summed - result).abs().max() / result.abs().max())
    assert (apart < 1e-12) if name == "one step" else (apart > 1e-2)  # the control: after one step effects do add up


def removed_set(removed: Tensor, kernel: Tensor, residual: Tensor, descent: LinearizedDescent) -> Tensor:
    """a - a_-S, [n k], by an eigendecomposition of what is left."""
    n, k = residual.shape
    remaining = torch.ones(n, dtype=torch.bool).index_fill(0, removed, value=False)
    rows = remaining.repeat_interleave(k)
    difference = reference_dynamics.coefficients(kernel, residual, descent).flatten()
    without = reference_dynamics.coefficients(kernel[rows][:, rows], residual[remaining], descent, n)
    difference[rows] -= without.flatten()
    return difference


def test_its_minimum_is_where_endless_training_ends() -> None:
    kernel, _, residual = some_kernels(10, 2)
    trained, converged = (
        LinearizedDynamics(kernel, residual, DESCENTS[name]) for name in ("decay", "converged, decay")
    )
    for dynamics in (trained, converged):
        assert torch.equal(dynamics.at_minimum.coefficients, converged.coefficients)
    assert not torch.allclose(trained.coefficients, converged.coefficients)


@pytest.mark.parametrize("k", [1, 3])
def test_what_it_predicts_for_an_example_left_out_is_what_ridge_regression_cross_validates(k: int) -> None:
    """Allen's PRESS: with outputs of 0 at w_0, y_i - f_-i(x_i) = (A⁻¹)_ii⁻¹ (A⁻¹ y)_i at the minimum."""
    kernel, held_out_kernel, residual = some_kernels(12, k)
    dynamics = LinearizedDynamics(kernel, residual, DESCENTS["converged, decay"])
    inverse = torch.linalg.inv(kernel + DESCENTS["converged, decay"].weight_decay * torch.eye(12 * k))
    y, blocks = -residual, inverse.view(12, k, 12, k)
    press = torch.stack(
        [torch.linalg.solve(blocks[i, :, i], (inverse @ y.flatten()).view(12, k)[i]) for i in range(12)]
    )
    _, self_effects = dynamics.effects(torch.arange(12), held_out_kernel)
    left_out = dynamics.predictions(torch.zeros(12, k), kernel) - self_effects
    torch.testing.assert_close(y - left_out, press)


def test_an_example_that_the_network_already_fits_changes_nothing_and_a_copy_shares_its_information() -> None:
    kernel, held_out_kernel, residual = some_kernels(10, 1)
    fitted = residual.clone()
    apart = kernel.clone()  # example 0 shares nothing with the others, and its residual is zero
    apart[0, 1:] = apart[1:, 0] = 0
    fitted[0] = 0
    changes = leave_one_out(LinearizedDynamics(apart, fitted, DESCENTS["discrete"]), held_out_kernel)
    assert float(changes.weight[0]) == 0
    assert float(changes.prediction[0]) == 0
    twins = torch.tensor([0, *range(10)])  # a copy of example 0: without one of them, the other is left
    doubled = LinearizedDynamics(kernel[twins][:, twins], residual[twins], DESCENTS["discrete"])
    single = LinearizedDynamics(kernel, residual, DESCENTS["discrete"])
    both, alone = leave_one_out(doubled, held_out_kernel[:, twins]), leave_one_out(single, held_out_kernel)
    assert float(both.weight[0]) < 0.5 * float(alone.weight[0])


@pytest.mark.parametrize("method", METHODS)
def test_the_error_bound_holds_and_follows_the_tolerance(method: Method) -> None:
    kernel, _, residual = some_kernels(20, 1)
    exact = LinearizedDynamics(kernel, residual, DESCENTS["discrete"], method=method).differences(torch.arange(20))
    bounds = []
    for tolerance in (1e-2, 1e-5, 1e-8):
        rough = LinearizedDynamics(kernel, residual, DESCENTS["discrete"], method=method, tolerance=tolerance)
        errors = rough.differences(torch.arange(20)) - exact
        distances = (errors * (kernel @ errors)).sum(0).sqrt()
        assert float(distances.max()) <= rough.error_bound
        bounds.append((float(distances.max()), rough.error_bound))
    assert bounds[0][0] > 0  # the bound was put to the test
    assert bounds[2][1] < bounds[0][1]


@pytest.mark.parametrize(
    ("method", "few", "many"),
    [("auto", "Chebyshev", "resolvents"), ("series", *["Chebyshev"] * 2), ("resolvent", *["resolvents"] * 2)],
)
def test_the_method_that_is_asked_for_or_the_cheaper_one_is_taken(method: Method, few: str, many: str) -> None:
    kernel, _, residual = some_kernels(20, 1)
    for steps, how in ((3, few), (5000, many)):
        descent = LinearizedDescent(learning_rate=0.05, steps=steps)
        assert LinearizedDynamics(kernel, residual, descent, method=method).how.startswith(how)


@pytest.mark.parametrize("name", ["discrete", "one step", "converged"])
def test_blocks_cover_all_examples_and_shrink_with_memory(name: str) -> None:
    kernel, _, residual = some_kernels(20, 3)
    dynamics = LinearizedDynamics(kernel, residual, DESCENTS[name])
    assert [len(block) for block in dynamics.blocks(1e9)] == [20]
    assert [len(block) for block in dynamics.blocks(1)] == [1] * 20
    assert torch.equal(torch.cat(dynamics.blocks(2e5)), torch.arange(20))


def test_what_cannot_be_computed_is_refused() -> None:
    kernel, _, residual = some_kernels(10, 1)
    with pytest.raises(ValueError, match="diverges on this kernel"):
        LinearizedDynamics(kernel, residual, LinearizedDescent(learning_rate=100.0, steps=10))
    with pytest.raises(ValueError, match="do not fit"):
        LinearizedDynamics(kernel[:9, :9], residual, DESCENTS["discrete"])
    twins = torch.tensor([0, 0, 1, 2])
    with pytest.raises(ValueError, match="singular"):
        LinearizedDynamics(kernel[twins][:, twins], residual[twins], DESCENTS["converged"])
    LinearizedDynamics(kernel[twins][:, twins], residual[twins], DESCENTS["converged, decay"])
    with pytest.raises(ValueError, match="kernel is zero"):
        LinearizedDynamics(torch.zeros_like(kernel), residual, DESCENTS["discrete"])
    with pytest.raises(ValueError, match="not finite"):
        LinearizedDynamics(kernel * math.nan, residual, DESCENTS["discrete"])


class Largest(TorchDispatchMode):
    """Notes the bytes of the largest tensor that is made within."""

    bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor):
            self.bytes = max(self.bytes, made.numel() * made.element_size())
        return made


@pytest.mark.parametrize(("name", "method"), [("discrete", "series"), ("discrete", "resolvent"), ("converged", "auto")])
def test_a_block_takes_the_memory_it_was_given_and_not_much_less(name: str, method: Method) -> None:
    kernel, held_out, residual = some_kernels(40, 3)
    dynamics = LinearizedDynamics(kernel, residual, DESCENTS[name], method=method)
    memory = 40 * 8 * len(kernel) * (20 if method == "resolvent" else 4)
    block = dynamics.blocks(memory, 7)[0]
    with Largest() as largest:
        dynamics.effects(block, held_out)
    assert memory / 40 < largest.bytes < memory
    assert 1 < len(block) < 40
