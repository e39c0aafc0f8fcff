"""python -m sample_info in miniature, through its real command line."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from PIL import Image

from conf import Options
from conf.compose import composed
from conf.schema import validate
from erasure.store.checked_files import load_tensors, read_json
from models.tangent.jacobian import jacobian, network_outputs
from models.tangent.kernel import ntk
from sample_info import training_problem
from sample_info.__main__ import COMMAND, experiment
from sample_info.linearized.dynamics import LinearizedDynamics
from sample_info.scored_examples import prepare
from sample_info.settings import SampleInfoConfig
from sample_info.training_problem import decisions
from tests.sample_info.reference_dynamics import coefficients
from tests.wandb_file import only_run

SMALL = ["model.width=64", "sample_info.examples=60", "sample_info.training.steps=500"]


def the_run() -> tuple[Path, dict]:
    (path,) = Path("runs").glob("sample_info-*/result.json")
    return path.parent, read_json(path)


def test_it_scores_every_example_and_computes_nothing_twice(command, monkeypatch, caplog, real_figures) -> None:
    outcome = command(COMMAND, *SMALL, "seeds=[0,1]")
    assert outcome.code == 0, outcome.err
    directory, result = the_run()
    assert "sample_info: Runs" in outcome.out
    assert "4, 9" in outcome.out
    tensors, metadata = load_tensors(directory / "scores.safetensors")
    assert tensors["f_si_nats"].shape == (2, 60)
    assert metadata["class_names"] == ["4", "9"]
    with (directory / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 120
    assert [float(row["f_si_nats"]) for row in rows[:60]] == tensors["f_si_nats"][0].tolist()
    assert {row["class"] for row in rows} == {"4", "9"}
    assert {row["name"] for row in rows} == {f"row {row['index']}" for row in rows}, "digits have no files"
    best = max(rows[:60], key=lambda row: float(row["f_si_nats"]))
    assert int(best["index"]) == result["information"]["f_si_nats"][0]["most_informative"][0]
    for s in range(2):
        mean = result["information"]["si_nats"][s]["mean_nats"]
        assert mean == pytest.approx(float(tensors["weight_change"][s].mean()) / 2)
    assert not torch.equal(tensors["f_si_nats"][0], tensors["f_si_nats"][1])
    assert result["network"]["test_accuracy"][0] > 0.8
    assert tensors["left_out_correct"].tolist() == [left_out_correct(result["config"], seed) for seed in (0, 1)]
    assert result["network"]["left_out_accuracy"] == tensors["left_out_correct"].double().mean(1).tolist()
    assert result["summaries"] is None  # none were asked for
    assert not (directory / "summaries.png").exists()
    assert Image.open(directory / "scores.png").size[0] > 700
    logged = only_run(directory)
    assert logged.run.run_id == result["run_id"]
    means = [one["mean_nats"] for one in result["information"]["f_si_nats"]]
    shown = {name: value for name, value in logged.summary.items() if "f_si_nats" in name}
    assert shown == {"information.f_si_nats.mean": pytest.approx(sum(means) / 2)}
    assert "W&B failed" not in caplog.text

    def fail(*_, **__) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(training_problem, "ntk", fail)
    again = command(COMMAND, *SMALL, "seeds=[0,1]")
    assert again.code == 0, again.err
    assert "table.md" in again.out


def left_out_correct(config: Options, seed: int) -> list[int]:
    """Whether each example's label is found without it: one linearised network after another."""
    examples = prepare(experiment(validate(config, SampleInfoConfig)))
    problem = examples.problem(seed)
    kernel = ntk(problem.model, problem.weights, problem.x, problem.held_out).train
    initial = network_outputs(problem.model, problem.weights, problem.x)
    correct = []
    for i in range(len(initial)):
        others = torch.arange(len(initial)) != i
        without = coefficients(kernel[others][:, others], (initial - problem.y)[others], problem.descent, len(initial))
        correct.append(int(decisions(initial[[i]] + kernel[i, others] @ without) == examples.train_labels[i]))
    return correct


def test_fewer_examples_than_asked_for_are_remarked_on(tmp_path: Path, caplog) -> None:
    overrides = ["sample_info.examples=100000", f"cache_dir={tmp_path}", "logger.mode=disabled", "model.width=8"]
    with caplog.at_level("INFO"):
        examples = prepare(experiment(composed("sample_info", overrides, SampleInfoConfig)))
    assert (
        f"sample_info.examples=100000: there are {len(examples.x)} training examples, and all are scored" in caplog.text
    )


def test_scores_depend_on_no_block_size_and_neither_does_the_run(command, tmp_path) -> None:
    options = [*SMALL, "logger.mode=disabled", "sample_info.examples=30"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert command(COMMAND, *options, f"runs_dir={whole}").code == 0
    assert command(COMMAND, *options, f"runs_dir={parts}", "sample_info.memory_gib=1e-4").code == 0
    (a,), (b,) = whole.glob("*/scores.safetensors"), parts.glob("*/scores.safetensors")
    assert a.parent.name == b.parent.name
    for name, values in load_tensors(a)[0].items():
        torch.testing.assert_close(load_tensors(b)[0][name], values, rtol=1e-10, atol=0)


def test_an_interrupted_run_continues_with_the_next_block(command, monkeypatch) -> None:
    options = [*SMALL, "logger.mode=disabled", "sample_info.memory_gib=1e-4"]
    assert command(COMMAND, *options, "runs_dir=whole").code == 0
    effects, calls = LinearizedDynamics.effects, []

    def counted(self, examples, held_out):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(len(examples))
        return effects(self, examples, held_out)

    monkeypatch.setattr(LinearizedDynamics, "effects", counted)
    assert command(COMMAND, *options).code == 130
    assert len(calls) == 3
    monkeypatch.setattr(LinearizedDynamics, "effects", lambda *a: calls.append(0) or effects(*a))
    assert command(COMMAND, *options).code == 0
    (blocks,) = Path("whole").glob("*/scores.safetensors")
    (resumed,) = Path("runs").glob("sample*/scores.safetensors")
    for name, values in load_tensors(blocks)[0].items():
        assert torch.equal(load_tensors(resumed)[0][name], values)
    assert sum(calls) < 60  # the first three blocks were not computed again
    assert not list(resumed.parent.glob("step-*"))


def test_vectors_have_names_where_images_are_shown(command, tmp_path: Path, monkeypatch) -> None:
    x = torch.randn(80, 6, generator=torch.Generator().manual_seed(0))
    x[:40, 0] += 2
    np.savez(tmp_path / "a.npz", x=x.numpy(), y=[0] * 40 + [1] * 40)
    options = ["dataset=arrays", f"dataset.path={tmp_path / 'a.npz'}"]
    words = [*SMALL, *options, "sample_info.classes=[0,1]", "logger.mode=disabled"]
    shown: list[str] = []
    monkeypatch.setattr(Axes, "imshow", lambda *_, **__: pytest.fail("drawn as an image"))
    monkeypatch.setattr(Axes, "text", lambda *a, **_: shown.append(a[3]))
    assert command(COMMAND, *words).code == 0
    directory, result = the_run()
    best, *_ = result["information"]["f_si_nats"]
    assert shown == [f"row {i}" for i in [*best["most_informative"], *best["least_informative"]]]
    with (directory / "scores.csv").open() as file:
        assert all(row["name"] == f"row {row['index']}" for row in csv.DictReader(file))


def test_wrong_labels_are_more_informative(command) -> None:
    options = [
        "model.width=256",
        "sample_info.data.label_noise=0.1",
        "sample_info.examples=200",
        "logger.mode=disabled",
    ]
    outcome = command(COMMAND, *options)
    assert outcome.code == 0, outcome.err
    _, result = the_run()
    assert result["groups"]["wrong label"]["examples"] == 20
    assert result["groups"]["wrong label"]["auroc"][0] > 0.8
    assert result["groups"]["right label"]["auroc"][0] < 0.2
    assert "wrong label" in outcome.out


def test_a_rare_subclass_is_more_informative(command) -> None:
    options = ["model.width=256", "sample_info.examples=200", "logger.mode=disabled", "seeds=[0,1]"]
    outcome = command(COMMAND, *options, "sample_info.classes=[[3,5],4]", "sample_info.data.at_most=[3:10]")
    assert outcome.code == 0, outcome.err
    directory, result = the_run()
    groups = result["groups"]
    assert list(groups) == ["3", "4", "5"]
    assert groups["3"]["examples"] <= 10
    assert sum(group["examples"] for group in groups.values()) == result["train_size"]
    assert min(groups["3"]["mean_nats"]) > 2 * max(groups["5"]["mean_nats"])
    assert "3+5, 4" in outcome.out
    tensors, metadata = load_tensors(directory / "scores.safetensors")
    names = [metadata["group_names"][j] for j in tensors["group"].tolist()]
    assert [metadata["class_names"][j] for j in tensors["label"].tolist()] == [
        "4" if name == "4" else "3+5" for name in names
    ]
    with (directory / "scores.csv").open() as file:
        assert [row["group"] for row in csv.DictReader(file)] == names * 2
    assert 0 < result["between_seeds"]["pearson"] <= 1


def test_adversarial_examples_are_a_group(command) -> None:
    options = [
        *SMALL,
        "sample_info.training.learning_rate=0.02",
        "sample_info.data.epsilon=0.3",
        "logger.mode=disabled",
    ]
    outcome = command(COMMAND, *options, "sample_info.data.adversarial=0.1")
    assert outcome.code == 0, outcome.err
    _, result = the_run()
    assert {name: group["examples"] for name, group in result["groups"].items()} == {"original": 54, "adversarial": 6}
    config = result["config"]
    options = config["sample_info"]
    attacked = prepare(experiment(validate(config, SampleInfoConfig)))
    plain = prepare(
        experiment(
            validate(
                config | {"sample_info": {**options, "data": {**options["data"], "adversarial": 0.0, "epsilon": 0.01}}},
                SampleInfoConfig,
            )
        )
    )
    moved = (attacked.stored(attacked.x) - plain.stored(plain.x)).abs().flatten(1).amax(1)
    assert torch.equal(moved > 0, attacked.groups.masks()["adversarial"])
    assert 0.25 < moved.max() <= 0.3 + 1e-6


def test_a_sweep_over_erasers_and_models_says_how_scores_move_and_how_well_they_agree(command) -> None:
    options = [*SMALL, "logger.mode=disabled", "sample_info.classes=[0,1,7]", "seeds=[0,1]"]
    outcome = command(COMMAND, "-m", "model.depth=1,2", "eraser=control,leace", *options)
    assert outcome.code == 0, outcome.err
    assert "rank correlation" in outcome.out
    assert "0, 1, 7" in outcome.out
    figures = [Path(line.removeprefix("figure: ")) for line in outcome.out.splitlines() if line.startswith("figure: ")]
    assert {"agreement.png", "movement.png"} < {figure.name for figure in figures if figure.exists()}
    table = next(Path("runs/sweeps").glob("*/table.md")).read_text()
    assert "| digits | MLP (depth=1) | control | LEACE |" in table
    for eraser in ("control", "LEACE"):
        assert f"| {eraser} | MLP (depth=1) | MLP (depth=2) | " in table


def test_scores_are_those_of_gradient_descent_on_the_weights_and_sgd_stands_beside_them(command) -> None:
    """The linearised network in weight space, trained step by step on everything and without each example."""
    options = ["model.width=16", "sample_info.examples=20", "sample_info.training.steps=50", "logger.mode=disabled"]
    options += ["sample_info.training.weight_decay=1.0", "sample_info.sgd_batch_size=5"]
    outcome = command(COMMAND, *options)
    assert outcome.code == 0, outcome.err
    directory, result = the_run()
    problem = prepare(experiment(validate(result["config"], SampleInfoConfig))).problem(0)
    j, j_held_out = (jacobian(problem.model, problem.weights, x)[:, 0] for x in (problem.x, problem.held_out))
    residual = (network_outputs(problem.model, problem.weights, problem.x) - problem.y)[:, 0]
    n, descent = len(residual), problem.descent
    masks = torch.cat([torch.ones(1, n), 1 - torch.eye(n)]).double()  # everything, then each without one
    w = torch.zeros(n + 1, j.shape[1], dtype=torch.float64)
    for _ in range(50):
        w = w - descent.learning_rate / n * ((residual + w @ j.T) * masks @ j + descent.weight_decay * w)
    moved = w[0] - w[1:]
    scores, _ = load_tensors(directory / "scores.safetensors")
    torch.testing.assert_close(scores["weight_change"][0], moved.square().sum(1), rtol=1e-8, atol=0)
    torch.testing.assert_close(
        scores["prediction_change"][0], (moved @ j_held_out.T).square().mean(1), rtol=1e-8, atol=0
    )
    assert result["information"]["si_sgd_nats"][0]["mean_nats"] > 0


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("sample_info.classes=[4]", "at least two classes"),
        ("sample_info.classes=[4,11]", "classes 0 to 9"),
        ("sample_info.classes=some", "sample_info.classes"),
        ("sample_info.training.learning_rate=10", "diverges on this kernel"),
        ("sample_info.data.at_most=[cat]", "is not NAME:COUNT"),
        ("sample_info.data.at_most=[cat:4]", "there is no group cat"),
        ("sample_info.classes=[[4,9],9]", "all different"),
        ("sample_info.data.epsilon=0", "sample_info.data.epsilon=0"),
        ("+sample_info={data: {adversarial: 0.5, epsilon: 1e-9}}", "0 of 60 examples fool"),
        ("+sample_info={data: {adversarial: 0.5}, training: {steps: converged}}", "adversarial=0.5"),
        (
            "sample_info.references.methods=[tracin]",
            "references.methods[0]=tracin: must be 'retraining', 'infl",
        ),
        ("sample_info.references.methods=[cosine,cosine]", "a method is named twice"),
        ("sample_info.references.subsets=2", "sample_info.references.subsets=2: must be at least 3"),
        ("sample_info.references.influence_damping=[0]", "sample_info.references.influence_damping[0]=0: must be"),
        ("sample_info.training.step=1", "did you mean training.steps"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_finished(command, override, said) -> None:
    outcome = command(COMMAND, *SMALL, "logger.mode=disabled", override)
    assert outcome.code == 2
    assert said in outcome.err
    assert len(outcome.err.strip().splitlines()) <= 2  # what is being fitted, then what is wrong
    assert not list(Path("runs").glob("*/result.json"))
