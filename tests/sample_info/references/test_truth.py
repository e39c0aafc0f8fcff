"""Trainings without sets: what they change, with its sign; kept as they end, and continued to the same bits."""

from pathlib import Path

import pytest
import torch

from harness.run import Run
from models.mlp import MLP
from sample_info.linearized.training import LinearizedDescent
from sample_info.problem import Problem
from sample_info.references.retraining import GradientDescent
from sample_info.references.truth import halves, positions, retrained_stacks, trained_without
from tests.sample_info.problems import draws, mlp_problem


def small_problem(memory_bytes: float = 1e9) -> Problem:
    model = MLP((1, 4, 4), 1, width=16, depth=1, activation="relu", parametrization="standard")
    model.reset_parameters(torch.Generator().manual_seed(0))
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    weights["readout.weight"] = draws(1, 16, seed=1).float()
    x, x_test = (draws(n, 1, 4, 4, seed=n).float() for n in (12, 7))
    descent = LinearizedDescent(learning_rate=0.3, steps=20)
    return Problem(model, weights, x, draws(12, 1, seed=3), x_test, descent, 0, batch_size=8, memory_bytes=memory_bytes)


@pytest.mark.parametrize("k", [1, 3])
def test_effects_of_sets_are_of_trainings_on_what_is_left_alone(k: int) -> None:
    descent, x_test = mlp_problem(k=k)
    sets = halves(20, 3)
    (found,) = retrained_stacks(descent, x_test, sets, effective_n=20, memory_bytes=2**31)
    everything = descent.predictions(descent.train(torch.ones(1, 20)), x_test)[0]
    for removed, outputs, prediction in zip(sets, found.outputs, found.prediction, strict=True):
        left = torch.ones(20).index_fill(0, removed, 0)
        alone = descent.predictions(descent.train(left[None]), x_test)[0]
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
    two_at_once = 2.5 * small_problem().training.bytes_per_member()
    problem, sets, train_on, trained = small_problem(two_at_once), halves(12, 5), GradientDescent.train_on, []

    def counted(descent: GradientDescent, parts: torch.Tensor, *progress) -> object:
        if len(trained) == 1 and interrupt:
            raise KeyboardInterrupt
        trained.append(len(parts))
        return train_on(descent, parts, *progress)

    monkeypatch.setattr(GradientDescent, "train_on", counted)
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
    (first,) = run.directory.glob("checkpoint-subsets-0-0.safetensors")
    first.write_bytes(first.read_bytes()[:-8])  # damaged: trained again, the others not
    trained.clear()
    assert torch.equal(trained_without(problem, sets, "subsets", run).outputs, whole.outputs)
    assert trained == [2]
