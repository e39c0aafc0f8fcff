"""Unique information in Python: the command's numbers, any network, and leaving out by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from conf.compose import composed
from models.any_module import AnyModule
from sample_info import unique_information
from sample_info.__main__ import COMMAND
from sample_info.settings import SampleInfoConfig, TrainingSettings
from sample_info.training_problem import initial_weights

RNG = np.random.default_rng(0)
X = RNG.standard_normal((70, 5))
TWO = np.where(X[:, 0] + 0.3 * RNG.standard_normal(70) > 0, "yes", "no")
THREE = np.digitize(X[:, 1], [-0.5, 0.5])
SHORT = TrainingSettings(learning_rate=0.05, steps=50, readout_gain=1.0)


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two classes", "three classes"])
def test_python_gives_the_scores_of_the_command(tmp_path: Path, y: np.ndarray) -> None:
    np.savez(tmp_path / "vectors.npz", x=X, y=y)
    words = ["dataset=arrays", f"dataset.path={tmp_path}/vectors.npz", "eraser=control", "sample_info.classes=all"]
    words += ["seeds=[2,3]", f"runs_dir={tmp_path}/runs", f"cache_dir={tmp_path}/cache", "logger.mode=disabled"]
    words += ["sample_info.sgd_batch_size=4"]
    words += ["sample_info.training.steps=100", "sample_info.training.weight_decay=0.5"]
    config = composed("sample_info", [*words, "model=mlp", "model.width=16"], SampleInfoConfig)
    experiment = COMMAND.experiment(config)
    assert experiment.carry_out(COMMAND.prepare, COMMAND.axes) is not None
    command = pd.read_csv(experiment.run.directory / "scores.csv")
    where = {name: index.numpy() for name, (index, _) in experiment.split_positions.items()}
    train, test = where["train"], where["test"]
    frame = unique_information(
        {"name": "mlp", "width": 16}, X[train], y[train], X[test],
        seeds=[2, 3], sgd_batch_size=4,
        training=TrainingSettings(learning_rate=1e-3, steps=100, weight_decay=0.5, readout_gain=1.0),
    )  # fmt: skip
    numbers = [*command.columns[command.columns.get_loc("weight_change") :]]
    assert {"f_si_nats", "si_sgd_nats", "left_out_correct"} < {*numbers}
    assert [*frame] == ["seed", "example", "label", *numbers]
    for seed, rows in command.groupby("seed"):
        mine = frame[frame["seed"] == seed].set_index("example")
        place = {position: i for i, position in enumerate(train)}
        mine = mine.loc[[place[index] for index in rows["index"]]]
        assert mine["label"].astype(str).tolist() == rows["class"].astype(str).tolist()
        names = dict(zip(rows["label"], rows["class"].astype(str), strict=True))
        assert mine["left_out_label"].astype(str).tolist() == [names[label] for label in rows["left_out_label"]]
        for name in {*numbers} - {"left_out_label"}:
            assert mine[name].tolist() == rows[name].tolist(), name  # True is 1


def test_signed_effects_are_differences_of_outputs_and_add_up_to_the_score() -> None:
    """Each example lowers its own loss; without held-out labels there are no losses."""
    training = TrainingSettings(learning_rate=0.01, steps=50, readout_gain=1.0)
    options: dict[str, Any] = {"pairwise": True, "training": training}
    frame = unique_information("mlp", X, TWO, X[:9], seeds=2, **options)
    effects = np.stack([*frame["output_effects"]])
    assert effects.shape == (140, 9, 1)
    assert np.square(effects).mean((1, 2)) == pytest.approx(frame["prediction_change"].to_numpy())
    assert "loss_effects" not in frame
    labelled = unique_information("mlp", X, TWO, X[:9], held_out_y=TWO[:9], **options)
    losses = np.stack([*labelled["loss_effects"]])
    assert losses.shape == (70, 9)
    assert (losses[np.arange(9), np.arange(9)] < 0).all()


def test_scores_of_a_linear_network_are_those_of_leaving_out_by_hand() -> None:
    """A linear network is its own linearisation: gradient descent without each example, step by step."""
    training = TrainingSettings(learning_rate=0.05, steps=50, readout_gain=None)
    frame = unique_information(lambda: nn.Linear(5, 1), X[:12], TWO[:12], X[60:], pairwise=True, training=training)
    x = torch.tensor((X[:12] - X[:12].mean(0)) / X[:12].std(0, ddof=1))
    held = torch.tensor((X[60:] - X[:12].mean(0)) / X[:12].std(0, ddof=1))
    y = torch.tensor(TWO[:12] == "yes").double()[:, None]
    drawn = initial_weights(AnyModule(lambda: nn.Linear(5, 1), (5,), 1), 0, None)
    w0, b0 = drawn["network.weight"].double().T, drawn["network.bias"].double()

    def trained(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        w, b = w0, b0
        for _ in range(50):
            slope = weights[:, None] * (x @ w + b - y) / 12
            w, b = w - 0.05 * x.T @ slope, b - 0.05 * slope.sum(0)
        return w, b

    whole = trained(torch.ones(12).double())
    for i in range(12):
        without = torch.ones(12).double()
        without[i] = 0
        w, b = trained(without)
        moved = (held @ whole[0] + whole[1]) - (held @ w + b)
        assert frame["prediction_change"][i] == pytest.approx(float(moved.square().mean()), rel=1e-4)
        np.testing.assert_allclose(frame["output_effects"][i], moved, rtol=1e-3, atol=1e-7)
        change = (whole[0] - w).square().sum() + (whole[1] - b).square().sum()
        assert frame["weight_change"][i] == pytest.approx(float(change), rel=1e-4)
    assert frame["f_si_nats"].to_numpy() == pytest.approx(frame["prediction_change"].to_numpy() / 2)


def test_a_mislabelled_example_of_a_frame_stands_out_under_its_own_name() -> None:
    names = [f"row {i}" for i in range(60)]
    clear = X[:60].copy()
    clear[:, 0] += 3 * np.sign(clear[:, 0])
    y = np.where(clear[:, 0] > 0, "yes", "no")
    y[7] = "no" if y[7] == "yes" else "yes"
    x = pd.DataFrame(clear, index=names, columns=list("abcde"))
    frame = unique_information(
        lambda: nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1)), x, y, X[60:], seeds=2,
        training=TrainingSettings(learning_rate=0.05, steps=500, readout_gain=None),
    )  # fmt: skip
    assert len(frame) == 120
    means = frame.groupby("example")["f_si_nats"].mean()
    assert means.idxmax() == "row 7"


def test_a_module_is_linearised_at_its_own_weights_and_left_as_it_was() -> None:
    def made() -> nn.Module:
        layer = nn.Linear(5, 1)
        nn.init.constant_(layer.weight, 3.0)
        nn.init.zeros_(layer.bias)
        return layer

    net = made()
    frames = [unique_information(model, X[:20], TWO[:20], X[60:], seeds=1) for model in (net, made)]
    assert frames[0].equals(frames[1])
    assert torch.equal(net.get_parameter("weight"), torch.full((1, 5), 3.0))
    with pytest.raises(ValueError, match="one set of weights"):
        unique_information(net, X[:20], TWO[:20], X[60:], seeds=2)


class Normalised(nn.Module):
    """BatchNorm in evaluation mode, by hand."""

    def __init__(self, norm: nn.BatchNorm1d) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(norm.weight.detach()), nn.Parameter(norm.bias.detach())
        self.mean, self.std = norm.get_buffer("running_mean"), (norm.get_buffer("running_var") + norm.eps).sqrt()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.mean) / self.std * self.weight + self.bias


def test_a_module_is_linearised_in_evaluation_mode_with_its_statistics() -> None:
    norm, first, last = nn.BatchNorm1d(4), nn.Linear(5, 4), nn.Linear(4, 1)
    norm.running_mean, norm.running_var = torch.arange(4.0), 1 + torch.arange(4.0)
    by_hand = nn.Sequential(first, Normalised(norm), nn.Tanh(), last)
    options: Any = {"training": replace(SHORT, readout_gain=None)}
    expected = unique_information(by_hand, X[:20], TWO[:20], X[20:30], **options)
    network = nn.Sequential(first, norm, nn.Tanh(), nn.Dropout(0.5), last)
    for mode in (True, False):
        scores = unique_information(network.train(mode), X[:20], TWO[:20], X[20:30], **options)
        np.testing.assert_allclose(scores["f_si_nats"], expected["f_si_nats"], rtol=1e-5)
        assert network.training == mode


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": pd.DataFrame(X), "held_out": pd.DataFrame(X[:9])[[4, 3, 2, 1, 0]]}, "other columns than x"),
        ({"x": pd.DataFrame(X), "y": pd.Series(TWO)[::-1]}, "same row labels in another order"),
        ({"held_out": pd.DataFrame(X[:9]).assign(**{"0": 1}).astype("category")}, "values of type category"),
        ({"device": "meta"}, "device=meta: cannot compute here"),
        ({"training": {"steps": 3}}, "training={'steps': 3}: pass sample_info.settings.TrainingSettings"),
        ({"held_out": X[:, :3]}, "held_out has examples"),
        ({"sigma": 0.0}, "sigma=0.0"),
        ({"held_out_y": TWO[:9]}, "held_out_y has no effect with pairwise=False"),
        ({"held_out_y": ["maybe"] * 9, "pairwise": True}, "label 'maybe' is none of y's"),
        ({"held_out_y": TWO[:3], "pairwise": True}, "for 3 labels"),
        ({"sgd_batch_size": 4}, "sgd_batch_size=4: needs a positive sample_info.training.weight_decay"),
        ({"model": "kernel"}, "no weights"),
        ({"model": nn.Linear(5, 2)}, r"1 outputs are needed.*return logits \[3, 1\]"),
        ({"y": X[:, 0]}, "integers or strings"),
        ({"seeds": []}, "seeds"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_a_line(changes: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"model": "mlp", "x": X, "y": TWO, "held_out": X[:9], "training": SHORT, **changes}
    with pytest.raises(ValueError, match=message) as refusal:
        unique_information(options.pop("model"), options.pop("x"), options.pop("y"), options.pop("held_out"), **options)
    assert "\n" not in str(refusal.value)
