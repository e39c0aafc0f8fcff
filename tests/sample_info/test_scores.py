"""Unique information in Python: the command's numbers, any network, and leaving out by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from conf.compose import composed
from harness.job import Job, split_positions
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
    config = composed("sample_info", [*words, "model=mlp", "model.width=16"], SampleInfoConfig)
    result = COMMAND.execution(config).carry_out()
    assert result is not None
    command = pd.read_csv(result.directory / "scores.csv")
    where = {
        name: part.images.numpy() for name, part in split_positions(Job.from_config("sample_info", config)).items()
    }
    train, test = where["train"], where["test"]
    options: Any = {"seeds": [2, 3]}
    frame = unique_information({"name": "mlp", "width": 16}, X[train], y[train], X[test], **options)
    for seed, rows in command.groupby("seed"):
        mine = frame[frame["seed"] == seed].set_index("example")
        place = {position: i for i, position in enumerate(train)}
        mine = mine.loc[[place[index] for index in rows["index"]]]
        assert mine["label"].astype(str).tolist() == rows["class"].astype(str).tolist()
        for name in ("f_si_nats", "si_nats", "weight_change", "prediction_change"):
            assert mine[name].tolist() == rows[name].tolist(), name
        assert mine["left_out_correct"].astype(int).tolist() == rows["left_out_correct"].tolist()


def test_scores_of_a_linear_network_are_those_of_leaving_out_by_hand() -> None:
    """A linear network is its own linearisation: gradient descent without each example, step by step."""
    training = TrainingSettings(learning_rate=0.05, steps=50, readout_gain=None)
    frame = unique_information(lambda: nn.Linear(5, 1), X[:12], TWO[:12], X[60:], seeds=1, training=training)
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
        moved = ((held @ whole[0] + whole[1]) - (held @ w + b)).square().mean()
        assert frame["prediction_change"][i] == pytest.approx(float(moved), rel=1e-4)
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": pd.DataFrame(X), "held_out": pd.DataFrame(X[:9])[[4, 3, 2, 1, 0]]}, "columns of x in another order"),
        ({"x": pd.DataFrame(X), "y": pd.Series(TWO)[::-1]}, "same row labels in another order"),
        ({"held_out": pd.DataFrame(X[:9]).assign(**{"0": 1}).astype("category")}, "which are no numbers"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"device": "gpu"}, "device=gpu: not a device"),
        ({"held_out": X[:, :3]}, "held_out has examples"),
        ({"sigma": 0.0}, "sigma=0.0"),
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
