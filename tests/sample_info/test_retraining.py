"""Trainings without sets, and on parts: what they change; kept as they end, and continued to the same bits."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from harness.run_directory import Run
from sample_info.gradient_descent import GradientDescent
from sample_info.linearized.descent import LinearizedDescent
from sample_info.retraining import halves, positions, retrained, train_on_each, trained_without
from sample_info.training_problem import TrainingProblem
from tests.sample_info.networks import small_mlp
from tests.sample_info.problems import mlp_problem

DESCENT = LinearizedDescent(learning_rate=0.05, steps=60, weight_decay=0.4)
LEFT = torch.tensor([0, 3, 4, 8, 11])  # of 12


@pytest.mark.parametrize("k", [1, 3])
def test_effects_of_sets_are_of_trainings_on_what_is_left_alone(k: int) -> None:
    descent, x_test = mlp_problem(k=k)
    sets = halves(20, 3)
    stack = retrained(descent, x_test, sets, memory_bytes=2**31)
    everything = descent.predictions(descent.train(descent.everything), x_test)[0]
    for removed, outputs, prediction in zip(sets, stack.outputs, stack.prediction, strict=True):
        left = torch.ones(20).index_fill(0, removed, 0).nonzero()[:, 0]
        smaller = replace(descent, x=descent.x[left], y=descent.y[left])
        alone = smaller.predictions(smaller.train(smaller.everything), x_test)[0]
        torch.testing.assert_close(outputs, everything - alone, rtol=1e-9, atol=1e-12)
        assert float(prediction) == pytest.approx(float((everything - alone).square().sum(1).mean()))


def test_halves_are_seeded_of_one_size_and_each_its_own() -> None:
    sets = halves(11, 40)
    assert sets.shape == (40, 5)
    assert torch.equal(sets[:10], halves(11, 10))  # more of them begin with the same
    assert all(len(one.unique()) == 5 for one in sets)
    share = torch.zeros(11).index_add(0, sets.flatten(), torch.ones(200)) / 40
    assert 0.2 < float(share.min()) < float(share.max()) < 0.8
    assert positions(torch.tensor([[1, 0, 1], [0, 1, 1]])).tolist() == [[0, 2], [1, 2]]


def test_a_killed_process_loses_no_stack_that_had_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = small_mlp(1).problem(DESCENT)
    problem = replace(problem, memory_bytes=2.5 * problem.training.bytes_per_member())
    sets, train, trained = halves(12, 5), GradientDescent.train, []

    def counted(descent: GradientDescent, parts: Tensor, *progress) -> object:
        if len(trained) == 1 and interrupt:
            raise KeyboardInterrupt
        if parts.shape[1] < 12:  # not the training on all examples
            trained.append(len(parts))
        return train(descent, parts, *progress)

    monkeypatch.setattr(GradientDescent, "train", counted)
    interrupt = False
    whole = trained_without(problem, sets, "subsets", Run(tmp_path / "a", "whole"))
    assert trained == [2, 2, 1]
    trained.clear()
    interrupt, run = True, Run(tmp_path / "b", "killed")
    run.directory.mkdir(parents=True)
    with pytest.raises(KeyboardInterrupt):
        trained_without(problem, sets, "subsets", run)
    interrupt = False
    trained.clear()
    resumed = trained_without(problem, sets, "subsets", run)
    assert trained == [2, 1]
    for part in ("weight", "prediction", "outputs"):
        assert torch.equal(getattr(resumed, part), getattr(whole, part))
    for step in run.directory.glob("step-subsets-0-[24].safetensors"):
        step.unlink()
    smaller = replace(problem, memory_bytes=1.5 * problem.training.bytes_per_member())
    trained.clear()
    resumed = trained_without(smaller, sets, "subsets", run)
    assert trained == [1, 1, 1]  # stacks of another size, of what is left
    torch.testing.assert_close(resumed.outputs, whole.outputs, rtol=1e-9, atol=1e-12)
    (first,) = run.directory.glob("step-subsets-0-0.safetensors")
    first.write_bytes(first.read_bytes()[:-8])  # damaged: trained again, the others not
    trained.clear()
    assert torch.equal(trained_without(problem, sets, "subsets", run).outputs, whole.outputs)
    assert trained == [2]


def mask(*left: Tensor) -> Tensor:
    masks = torch.zeros(len(left), 12, dtype=torch.bool)
    for row, members in zip(masks, left, strict=True):
        row[members] = True
    return masks


def plain_training(problem: TrainingProblem, left: Tensor) -> Tensor:
    """Mean loss over what is left, plain PyTorch: outputs on the held-out inputs."""
    weights = {name: weight.clone().requires_grad_() for name, weight in problem.weights.items()}
    optimizer = torch.optim.SGD(weights.values(), lr=DESCENT.learning_rate)
    for _ in range(int(DESCENT.steps)):
        optimizer.zero_grad()
        outputs = torch.func.functional_call(problem.model, weights, (problem.x[left],))
        decay = sum((w - problem.weights[name]).square().sum() for name, w in weights.items())
        loss = (0.5 * (outputs - problem.y[left]).square().sum() + DESCENT.weight_decay / 2 * decay) / len(left)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return torch.func.functional_call(problem.model, weights, (problem.held_out,))


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("memory_bytes", [1e9, 4e4])
def test_training_on_parts_is_a_plain_loop_on_each(k: int, memory_bytes: float) -> None:
    problem = replace(small_mlp(k).problem(DESCENT), memory_bytes=memory_bytes)
    others = torch.tensor([1, 2, 3, 5, 6])
    result = train_on_each(problem, mask(LEFT, others))
    for outputs, left in zip(result, (LEFT, others), strict=True):
        torch.testing.assert_close(outputs, plain_training(problem, left), rtol=1e-10, atol=1e-12)
    assert (result[0] - result[1]).abs().max() > 1e-2  # it does matter what is left


def test_parts_that_cannot_be_trained_together_are_refused() -> None:
    problem = small_mlp(1).problem(DESCENT)
    with pytest.raises(AssertionError, match="different sizes"):
        train_on_each(problem, mask(LEFT, LEFT[:2]))
    with pytest.raises(ValueError, match="diverged"):
        train_on_each(replace(problem, descent=replace(DESCENT, learning_rate=1e6)), mask(LEFT))
