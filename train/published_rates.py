"""Learning rates, β₁ and warm-up of the paper's code by model and eraser, for `train=published`."""

from collections.abc import Mapping
from typing import Any

from conf import Options
from conf.check import ConfigError

PUBLISHED = "published"  # value of an option that is looked up here

_ERASERS = ("control", "leace", "oracle_leace", "alf_qleace", "qleace", "qleace_truncated", "random", "gradient",
            "gradient_published")  # fmt: skip


def _rates(usual: float, **others: float) -> dict[str, float]:
    return dict.fromkeys(_ERASERS, usual) | others


LEARNING_RATES = {  # by model, and by eraser
    "mlp": _rates(5e-4, gradient=1e-4, gradient_published=1e-4),
    "lenet": _rates(5e-4),
    "lenet_published": _rates(5e-4),
    "convnextv2": _rates(
        1e-3, leace=1e-4, oracle_leace=1e-4, control=5e-5, random=5e-5, gradient=5e-5, gradient_published=5e-5
    ),
    "swinv2": _rates(1e-3),
}
_BETA1 = {"mlp": 0.95, "lenet": 0.95, "lenet_published": 0.95, "convnextv2": 0.9, "swinv2": 0.9}
_BETA2 = 0.999
_WARMUP_STEPS = {"mlp": 1000, "lenet": 0, "lenet_published": 0, "convnextv2": 0, "swinv2": 0}


def with_published_rates(train: Options, model: str, eraser: str) -> Options:
    """Return options of `conf/train`, with "published" replaced by numbers in `lr`, `betas` and `warmup_steps`.

    Args:
        train: the options.
        model: the model's name.
        eraser: the eraser's name.

    Raises:
        ConfigError: the paper's code has no such number for this model or eraser.
    """
    numbers = dict(train)
    if train.get("lr") == PUBLISHED:
        numbers["lr"] = _look_up("lr", _look_up("lr", LEARNING_RATES, "model", model), "eraser", eraser)
    if train.get("betas") == PUBLISHED:
        numbers["betas"] = [_look_up("betas", _BETA1, "model", model), _BETA2]
    if train.get("warmup_steps") == PUBLISHED:
        numbers["warmup_steps"] = _look_up("warmup_steps", _WARMUP_STEPS, "model", model)
    return numbers


def _look_up(option: str, table: Mapping[str, Any], group: str, name: str) -> Any:
    if name not in table:
        raise ConfigError(
            f"train.{option}={PUBLISHED}: the paper's code has none for {group}={name}: choose from "
            f"{', '.join(sorted(table))}, or set train.{option}=VALUE"
        )
    return table[name]
