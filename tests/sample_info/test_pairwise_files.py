"""Signed effects on disk: through the real command line, from blocks, and what norms are computed from."""

from pathlib import Path

import pytest
import torch

from conf.schema import validate
from erasure.store.checked_files import load_tensors, read_json
from sample_info.__main__ import COMMAND, experiment
from sample_info.linearized.dynamics import LinearizedDynamics
from sample_info.linearized.network import LinearizedNetwork
from sample_info.pairwise_files import read_pairwise
from sample_info.scored_examples import prepare
from sample_info.settings import SampleInfoConfig

SMALL = ["model.width=32", "sample_info.examples=40", "sample_info.held_out=30", "sample_info.training.steps=200"]
SMALL += ["logger.mode=disabled", "sample_info.classes=[0,1,7]"]


def the_run(runs: str) -> Path:
    (path,) = Path(runs).glob("sample_info-*/scores.safetensors")
    return path.parent


def test_effects_are_kept_and_scores_are_what_they_were(command, monkeypatch) -> None:
    assert command(COMMAND, *SMALL, "runs_dir=without").code == 0
    assert not list(the_run("without").glob("pairwise-*"))
    with pytest.raises(ValueError, match="sample_info.pairwise=true"):
        read_pairwise(the_run("without"), 0)
    wanted = [*SMALL, "sample_info.pairwise=true", "seeds=[0,1]"]
    assert command(COMMAND, *wanted, "runs_dir=whole").code == 0
    scores, _ = load_tensors(the_run("whole") / "scores.safetensors")
    plain, _ = load_tensors(the_run("without") / "scores.safetensors")
    assert torch.equal(scores["prediction_change"][0], plain["prediction_change"][0])
    outputs, loss = read_pairwise(the_run("whole"), 0)
    assert outputs.shape == (30, 40, 3)
    assert loss.shape == (30, 40)
    torch.testing.assert_close(outputs.square().sum(-1).mean(0), scores["prediction_change"][0], rtol=1e-12, atol=0)
    config = read_json(the_run("whole") / "result.json")["config"]
    examples = prepare(experiment(validate(config, SampleInfoConfig)))
    problem = examples.problem(0)
    network = LinearizedNetwork(problem, problem.kernels())
    trained, without = network.trained_held_out, network.without(torch.arange(40)[:, None])
    y = examples.targets(examples.held_out_labels)
    torch.testing.assert_close(outputs.transpose(0, 1), trained - without, rtol=1e-8, atol=1e-10)
    halves = [(predicted - y).square().sum(-1) / 2 for predicted in (trained, without)]
    torch.testing.assert_close(loss.T, halves[0] - halves[1], rtol=1e-8, atol=1e-10)  # below zero where one helps
    assert not torch.equal(read_pairwise(the_run("whole"), 1)[0], outputs)

    effects, calls = LinearizedDynamics.effects, []

    def interrupted(self, *options):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(0)
        return effects(self, *options)

    monkeypatch.setattr(LinearizedDynamics, "effects", interrupted)
    assert command(COMMAND, *wanted, "sample_info.memory_gib=1.5e-4").code == 130
    monkeypatch.setattr(LinearizedDynamics, "effects", effects)
    assert command(COMMAND, *wanted, "sample_info.memory_gib=1e-4").code == 0  # other blocks than before
    assert sorted(path.name for path in the_run("runs").glob("pairwise-*")) == [
        "pairwise-0.safetensors",
        "pairwise-1.safetensors",
    ]
    for seed in (0, 1):
        result, expected = read_pairwise(the_run("runs"), seed), read_pairwise(the_run("whole"), seed)
        torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-12)


def test_where_the_eraser_is_refitted_effects_are_of_what_each_of_its_networks_does(command) -> None:
    options = [
        "eraser=leace",
        "sample_info.data.eraser_fit=refit",
        "sample_info.examples=6",
        "sample_info.classes=[4,9]",
    ]
    assert command(COMMAND, *SMALL, *options, "sample_info.pairwise=true").code == 0
    scores, _ = load_tensors(the_run("runs") / "scores.safetensors")
    outputs, _ = read_pairwise(the_run("runs"), 0)
    torch.testing.assert_close(outputs.square().sum(-1).mean(0), scores["prediction_change"][0], rtol=1e-12, atol=0)
