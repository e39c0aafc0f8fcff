"""Dataset summaries: parts of a training set are training sets of their own, whoever trains on them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from erasure.store.storage import read_json
from models.tangent.jacobian import network_outputs
from models.tangent.ntk import ntk
from sample_info.__main__ import VERB
from sample_info.changes import functional_information
from sample_info.linearized.dynamics import LinearizedDynamics, leave_one_out
from sample_info.linearized.network import LinearizedNetwork
from sample_info.linearized.training import LinearizedDescent
from sample_info.problem import Problem
from sample_info.references.retraining import DivergedError
from sample_info.summaries import accuracy
from sample_info.summaries.accuracy import train_on_each
from tests.sample_info.networks import Linearization, small_mlp
from tests.wandb_file import only_run

DESCENT = LinearizedDescent(learning_rate=0.05, steps=60, weight_decay=0.4)
LEFT = torch.tensor([0, 3, 4, 8, 11])  # of 12
SMALL = ["model.width=64", "sample_info.examples=60", "sample_info.training.steps=300"]
TRY = [
    *SMALL,
    "sample_info.summaries.orders=[bottom,bottom_iterative,top,random]",
    "sample_info.summaries.removed=[0.0,0.5,0.9]",
]
QUIET = "logger.mode=disabled"
TRAINED = ["sample_info.summaries.network=trained", "sample_info.summaries.draws=2", "sample_info.training.steps=40"]


def problem_of(net: Linearization) -> Problem:
    """In float64, so that a plain training gives the same to many digits."""
    double = net.model.double()
    weights = {name: weight.double() for name, weight in net.weights.items()}
    x, held_out = net.x.double(), net.held_out.double()
    return Problem(double, weights, x, net.y, held_out, DESCENT, seed=0, batch_size=64, memory_bytes=1e9)


def mask(*left: Tensor) -> Tensor:
    masks = torch.zeros(len(left), 12, dtype=torch.bool)
    for row, positions in zip(masks, left, strict=True):
        row[positions] = True
    return masks


@pytest.mark.parametrize("k", [1, 3])
def test_a_part_of_the_kernel_is_the_kernel_of_the_part(k: int) -> None:
    """Predictions and scores against the verb's own steps from scratch on the examples that are left."""
    net = small_mlp(k)
    whole = LinearizedNetwork(problem_of(net), ntk(net.model, net.weights, net.x, net.held_out))
    alone = ntk(net.model, net.weights, net.x[LEFT], net.held_out)
    initial = network_outputs(net.model, net.weights, net.x[LEFT])
    dynamics = LinearizedDynamics(alone.train, initial - net.y[LEFT], DESCENT)
    predicted = dynamics.predictions(whole.initial_held_out, alone.held_out)
    torch.testing.assert_close(whole.predictions_from(LEFT), predicted, rtol=1e-10, atol=1e-12)
    scores = functional_information(leave_one_out(dynamics, alone.held_out), 0.5)
    torch.testing.assert_close(whole.functional_information(LEFT, 0.5), scores, rtol=1e-10, atol=1e-15)
    of_all = functional_information(leave_one_out(whole.dynamics, whole.kernels.held_out), 0.5)
    assert ((of_all[LEFT] - scores).abs() > 0.1 * scores).all()  # what others told is unique now


def plain_training(problem: Problem, left: Tensor) -> Tensor:
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
    problem = replace(problem_of(small_mlp(k)), memory_bytes=memory_bytes)
    others = torch.tensor([1, 2, 3, 5, 6])
    found = train_on_each(problem, mask(LEFT, others))
    for outputs, left in zip(found, (LEFT, others), strict=True):
        torch.testing.assert_close(outputs, plain_training(problem, left), rtol=1e-10, atol=1e-12)
    assert (found[0] - found[1]).abs().max() > 1e-2  # it does matter what is left


def test_parts_that_cannot_be_trained_together_are_refused() -> None:
    problem = problem_of(small_mlp(1))
    with pytest.raises(ValueError, match=r"parts of \[2, 5\] examples: those that are trained together"):
        train_on_each(problem, mask(LEFT, LEFT[:2]))
    with pytest.raises(DivergedError):
        train_on_each(replace(problem, descent=replace(DESCENT, learning_rate=1e6)), mask(LEFT))


def the_run(runs: str = "runs") -> tuple[Path, dict]:
    (path,) = Path(runs).glob("sample_info-*/result.json")
    return path.parent, read_json(path)


def test_the_verb_says_what_is_lost(command) -> None:
    outcome = command(VERB, *TRY, "seeds=[0,1]")
    assert outcome.code == 0, outcome.err
    directory, result = the_run()
    found = result["summaries"]
    assert (found["network"], found["removed"]) == ("linearized", [0.0, 0.5, 0.9])
    assert [*found["accuracy"]] == ["bottom", "bottom_iterative", "top", "random"]
    for by_seed in found["accuracy"].values():
        assert [curve[0] for curve in by_seed] == pytest.approx(result["network"]["test_accuracy"])  # nothing removed
    assert found["accuracy"]["bottom"][0][1] > found["accuracy"]["top"][0][1]
    draws = torch.tensor(found["random_draws"])
    assert draws.shape == (2, 5, 3)
    torch.testing.assert_close(draws.mean(1), torch.tensor(found["accuracy"]["random"]))
    assert len({tuple(draw) for draw in draws.flatten(0, 1).tolist()}) > 5  # seeds have draws of their own
    assert "summaries, accuracy of the linearised network" in outcome.out
    drawn = directory / "summaries.png"
    assert f"figure: {drawn}" in outcome.out
    assert Image.open(drawn).size[0] > 500
    assert "| 50% |" in (directory / "table.md").read_text()
    logged = {key for point in only_run(directory).history for key in point}
    assert {"summaries/figure._type", "summaries/accuracy._type"} <= logged


def test_all_ten_classes_and_another_architecture(command) -> None:
    options = [
        "sample_info.classes=all",
        "sample_info.summaries.removed=[0.0,0.8]",
        "sample_info.summaries.model={depth: 2}",
    ]
    outcome = command(VERB, *TRY, *TRAINED, *options, QUIET)
    assert outcome.code == 0, outcome.err
    _, result = the_run()
    found = result["summaries"]
    assert "of the network trained again (depth=2)" in outcome.out
    assert found["accuracy"]["bottom"][0][0] != result["network"]["test_accuracy"][0]  # another network
    lost = [min(curve) < 10 for by_seed in found["classes_left"].values() for curve in by_seed]
    assert any(lost)
    assert " *" in outcome.out


def test_an_interrupted_run_does_no_training_again(command, monkeypatch) -> None:
    options = [*TRY, *TRAINED, QUIET, "seeds=[0,1]"]
    assert command(VERB, *options, "runs_dir=whole").code == 0
    train, sizes = accuracy.train_on_each, []

    def interrupted(problem, left, progress):
        if len(sizes) == 4:
            raise KeyboardInterrupt
        sizes.append(int(left[0].sum()))
        return train(problem, left, progress)

    monkeypatch.setattr(accuracy, "train_on_each", interrupted)
    assert command(VERB, *options).code == 130
    assert sizes == [60, 30, 6, 60]

    def counted(problem, left, progress):
        sizes.append(int(left[0].sum()))
        return train(problem, left, progress)

    monkeypatch.setattr(accuracy, "train_on_each", counted)
    monkeypatch.delattr(accuracy, "bottom_iterative")  # both seeds' orders are on disk
    assert command(VERB, *options).code == 0
    assert sizes == [60, 30, 6, 60, 30, 6]
    directory, result = the_run()
    assert result["summaries"] == the_run("whole")[1]["summaries"]
    assert not list(directory.glob("part-*"))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "sample_info.summaries.orders=[botom]",
            "there is no botom; choose from bottom, bottom_iterative, top, random",
        ),
        ("sample_info.summaries.orders=[top,top]", "an order is named twice"),
        ("sample_info.summaries.removed=[0.5,1.0]", "sample_info.summaries.removed=[0.5, 1.0]: need fractions"),
        ("sample_info.summaries.removed=[-0.1]", "sample_info.summaries.removed=[-0.1]: need fractions"),
        ("sample_info.summaries.removed=[0.5,0.2]", "must increase"),
        ("sample_info.summaries.removed=[0.99]", "leaves 1 of 60 examples"),
        ("sample_info.summaries.draws=0", "sample_info.summaries.draws=0: must be at least 1"),
        ("sample_info.summaries.network=pruned", "sample_info.summaries.network=pruned"),
        (
            "sample_info.summaries.model={depth: 2}",
            "needs summaries.orders and summaries.network=trained",
        ),
    ],
)
def test_bad_input_is_one_line_before_anything_is_loaded(command, override, said) -> None:
    outcome = command(VERB, *TRY, QUIET, override)
    assert outcome.code == 2
    assert said in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["sample_info.training.steps=converged"],
            "sample_info.summaries.network=trained: networks are trained for it step by step",
        ),
        (
            ["sample_info.summaries.model={dept: 2}"],
            "unknown key sample_info.summaries.model.dept: did you mean depth?",
        ),
        (["sample_info.summaries.model={depth: two}"], "sample_info.summaries.model.depth=two"),
        (["sample_info.summaries.model={_target_: models.mlp.MPL}"], "_target_=models.mlp.MPL: cannot be imported"),
    ],
)
def test_what_cannot_be_trained_is_refused_likewise(command, overrides, said) -> None:
    outcome = command(VERB, *TRY, *TRAINED, QUIET, *overrides)
    assert outcome.code == 2
    assert said in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["sample_info.classes=all"],
            "sample_info.summaries.removed=0.9: leaves 6 of 60 examples, and 10 classes need 10",
        ),
        (
            [
                "sample_info.summaries.orders=[top]",
                "sample_info.training.learning_rate=0.0365",
            ],  # stable on all of them
            "sample_info.summaries.removed=0.5: learning_rate=0.0365: gradient descent diverges on this kernel from",
        ),
    ],
)
def test_what_the_data_refuse_names_the_fraction(command, overrides, said) -> None:
    outcome = command(VERB, *TRY, QUIET, *overrides)
    assert outcome.code == 2
    assert said in outcome.err
    assert not list(Path("runs").glob("*/result.json"))
