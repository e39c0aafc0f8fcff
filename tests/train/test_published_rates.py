"""The published learning rates of a model and eraser, with the numbers of the paper's code."""

import pytest

from conf.check import ConfigError
from conf.compose import composed
from mdl.settings import MdlConfig
from train.published_rates import with_published_rates

OPTIONS = {"lr": "published", "betas": "published", "warmup_steps": "published", "batch_size": 128}


@pytest.mark.parametrize(
    ("model", "eraser", "lr", "beta1", "warmup_steps"),
    [
        ("mlp", "leace", 5e-4, 0.95, 1000),
        ("mlp", "gradient", 1e-4, 0.95, 1000),
        ("lenet_published", "gradient_published", 5e-4, 0.95, 0),
        ("convnextv2", "control", 5e-5, 0.9, 0),
        ("convnextv2", "leace", 1e-4, 0.9, 0),
        ("convnextv2", "qleace_truncated", 1e-3, 0.9, 0),
        ("swinv2", "random", 1e-3, 0.9, 0),
    ],
)
def test_a_run_has_the_rates_of_its_model_and_eraser(
    model: str, eraser: str, lr: float, beta1: float, warmup_steps: int
) -> None:
    config = composed("mdl", ["train=published", f"model={model}", f"eraser={eraser}"], MdlConfig)
    assert (config.train.lr, config.train.betas, config.train.warmup_steps) == (lr, (beta1, 0.999), warmup_steps)


def test_an_option_with_a_value_keeps_it() -> None:
    words = ["train=published", "train.lr=0.02", "train.betas=[0.8,0.9]", "model=linear", "train.warmup_steps=3"]
    train = composed("mdl", words, MdlConfig).train
    assert (train.lr, train.betas, train.warmup_steps) == (0.02, (0.8, 0.9), 3)
    assert with_published_rates(OPTIONS | {"lr": 0.02}, "mlp", "mine")["lr"] == 0.02


@pytest.mark.parametrize(
    ("model", "eraser", "line"),
    [
        ("linear", "leace", r"train.lr=published: .* none for model=linear: choose from convnextv2, .* train.lr=VALUE"),
        ("mlp", "mine", r"train.lr=published: .* none for eraser=mine: choose from alf_qleace, .* train.lr=VALUE"),
    ],
)
def test_a_model_or_eraser_without_a_published_rate_is_refused(model: str, eraser: str, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        with_published_rates(OPTIONS, model, eraser)
