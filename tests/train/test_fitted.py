"""Training in Python: the command's losses, predictions in the user's own terms, refusals."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from conf.check import check
from conf.compose import composed
from conf.groups import preset
from harness.loss_curves import read_loss_curves
from train import Fitted, fit
from train.__main__ import COMMAND
from train.randomness import permutation
from train.result import TrainResult
from train.settings import TrainConfig, TrainSettings

RNG = np.random.default_rng(0)
X = RNG.standard_normal((240, 6)) * [1, 2, 3, 4, 5, 6] + 7
Y = np.where(X[:, 0] - 7 + 0.3 * RNG.standard_normal(240) > 0, "right", "left")
QUICK: dict[str, Any] = {"settings": "quick", "seeds": 2}
PRESET = check("", preset("train", "quick"), TrainSettings)


def test_python_gives_the_losses_of_the_command(tmp_path: Path) -> None:
    np.savez(tmp_path / "vectors.npz", x=X, y=Y)
    words = ["dataset=arrays", f"dataset.path={tmp_path}/vectors.npz", "logger.mode=disabled", "train=quick"]
    words += [f"cache_dir={tmp_path}/cache", f"runs_dir={tmp_path}/runs", "eraser=control", "model=mlp", "seeds=[3,5]"]
    config = composed("train", words, TrainConfig)
    experiment = COMMAND.experiment(config)
    result = experiment.carry_out(COMMAND.prepare, COMMAND.axes)
    assert isinstance(result, TrainResult)
    where = {name: index.numpy() for name, (index, _) in experiment.split_positions.items()}
    parts: dict[str, Any] = {name: (X[index], Y[index]) for name, index in where.items()}
    x, y = parts.pop("train")
    fitted = fit(x, y, "mlp", seeds=[3, 5], settings="quick", **parts)
    final = result.final
    expected = {"train": final.train_loss_bits, "validation": final.validation_loss_bits, "test": final.loss_bits}
    assert {name: fitted.losses[f"{name}_loss_bits"].tolist() for name in expected} == expected
    assert fitted.losses["test_accuracy"].tolist() == final.accuracy
    assert fitted.losses["epochs"].tolist() == result.epochs
    (run,) = (tmp_path / "runs").iterdir()
    for seed, curve in read_loss_curves(run / "curves.csv").items():
        mine = fitted.curve[fitted.curve["seed"] == seed]
        assert mine["epoch"].tolist() == [*curve.epochs]
        np.testing.assert_allclose(mine["validation_loss_bits"], curve.validation_bits, atol=1e-6)


def test_predictions_are_those_that_were_scored() -> None:
    x, y = pd.DataFrame(X, columns=list("abcdef")), pd.Series(Y)
    fitted = fit(x[:160], y[:160], "mlp", validation=(x[160:200], y[160:200]), test=(x[200:], y[200:]), **QUICK)
    p, found = fitted.predict_proba(x[200:]), fitted.predict(x[200:])
    assert p.shape == (2, 40, 2)
    assert list(fitted.classes) == ["left", "right"]
    positions = (Y[200:] == "right").astype(int)
    bits = -np.log2(p[:, np.arange(40), positions]).mean(1)
    np.testing.assert_allclose(bits, fitted.losses["test_loss_bits"], rtol=1e-5)
    np.testing.assert_allclose((found == Y[200:]).mean(1), fitted.losses["test_accuracy"])
    assert (found == Y[200:]).mean() > 0.8
    assert str(fitted).startswith("test 0.")
    assert "accuracy 9" in str(fitted) or "accuracy 8" in str(fitted)
    with pytest.raises(
        ValueError, match="x has other columns than the training examples, or in another order: pass x"
    ) as refusal:
        fitted.predict(x[[*"fedcba"]])
    remedy = eval(str(refusal.value).partition("pass ")[2].partition(", or ")[0], {"x": x[[*"fedcba"]]})
    np.testing.assert_array_equal(fitted.predict(remedy), fitted.predict(x))
    with pytest.raises(ValueError, match="x has other columns than the training examples"):
        fitted.predict(x.rename(columns={"a": "g"}))
    np.testing.assert_array_equal(fitted.predict(x.rename(columns={"a": "g"}).to_numpy()), fitted.predict(x))
    with pytest.raises(ValueError, match=r"x has examples \[3, 1, 1\], but the training examples are \[6, 1, 1\]"):
        fitted.predict(X[:, :3])


def test_the_last_tenth_stops_trainings_and_is_not_learnt() -> None:
    """Flip the labels of the last tenth of a seed's order: training losses stay as they were."""
    flipped = (Y == "right").astype(int)
    flipped[permutation(4, 240)[-24:]] ^= 1

    def trained(y: Any) -> Fitted:
        def net() -> nn.Module:
            return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))

        return fit(torch.tensor(X), y, net, settings="quick", seeds=[4])

    fitted, misled = trained((Y == "right").astype(int)), trained(flipped)
    epochs = min(len(fitted.curve), len(misled.curve))
    assert epochs > 5
    mine, theirs = fitted.curve[:epochs], misled.curve[:epochs]
    pd.testing.assert_series_equal(mine["train_loss_bits"], theirs["train_loss_bits"])
    assert (mine["validation_loss_bits"] != theirs["validation_loss_bits"]).all()
    assert "test_loss_bits" not in fitted.losses
    assert str(fitted).startswith("validation 0.")


def test_images_may_be_mirrored_and_one_seed_is_drawn() -> None:
    images = RNG.integers(0, 255, (60, 1, 6, 6), dtype=np.uint8)
    options: dict[str, Any] = {"flip": True, "settings": PRESET, "seeds": [4], "device": torch.device("cpu")}
    fitted = fit(images, np.arange(60) % 3, {"name": "mlp", "width": 8}, **options)
    assert fitted.weights["readout.weight"].shape[:2] == (1, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "kernel"}, "model=kernel: has no weights"),
        ({"model": "nothing"}, "model='nothing': choose from"),
        ({"model": LogisticRegression()}, "LogisticRegression: no network; of classifiers, mdl.codelength alone"),
        ({"settings": "published"}, "settings='published': choose from"),
        ({"settings": {"lr": 0.1}}, "settings={'lr': 0.1}: choose from .*, or pass TrainSettings"),
        ({"settings": replace(PRESET, lr=-0.005)}, "settings.lr=-0.005: must be a positive number"),
        ({"settings": replace(PRESET, precision="float64")}, "settings.precision=float64: must be 'auto'"),  # pyright: ignore
        ({"device": None}, "device=None: not a device; choose auto"),
        ({"seeds": 0}, "seeds=0: need a number of seeds"),
        ({"test": X}, r"test: pass a pair \(x, y\)"),
    ],
)
def test_what_cannot_be_trained_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(X, Y, **(QUICK | arguments))


def test_pixels_of_another_scale_are_refused() -> None:
    """The same images as uint8, which stand for 0..1, and as floats up to 255 are different numbers."""
    images = RNG.integers(0, 255, (60, 1, 4, 4), dtype=np.uint8)
    y = np.arange(60) % 3
    fitted = fit(images, y, "linear", seeds=1, settings="quick")
    with pytest.raises(ValueError, match=r"x has shape \[.*need \[n, d\] or \[n, C, H, W\]"):
        fitted.predict_proba(images[0])
    np.testing.assert_allclose(fitted.predict_proba(images / 255), fitted.predict_proba(images), atol=1e-5)
    with pytest.raises(
        ValueError,
        match=r"x has type torch.float64, but the training examples have torch.uint8: uint8 pixels stand for",
    ):
        fitted.predict(images.astype(float))
    for name in ("validation", "test"):
        others: dict[str, Any] = {name: (images, y)}
        with pytest.raises(ValueError, match=rf"{name} x has type torch.uint8, but the training examples .* one type"):
            fit(images.astype(float), y, "linear", settings="quick", **others)
