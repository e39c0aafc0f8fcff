"""Options of `conf/sample_info`: what they mean, and which do not go together."""

import pytest

from conf.compose import composed
from sample_info.settings import SampleInfoConfig, SampleInfoSettings

TRAINED = ["summaries.orders=[bottom]", "summaries.network=trained"]


def settings(*overrides: str) -> SampleInfoSettings:
    chosen = [f"sample_info.{override}" for override in overrides]
    return composed("sample_info", chosen, SampleInfoConfig).sample_info


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["sgd_batch_size=0", "training.weight_decay=1"], "sgd_batch_size=0: must be at least 1"),
        (["sgd_batch_size=8", "training.weight_decay=0"], "needs a positive sample_info.training.weight_decay"),
        ([*TRAINED, "training.steps=converged"], "training.steps=converged"),
        (
            ["references.methods=[influence]", "training.steps=converged"],
            "references.methods=.*needs training step by step",
        ),
        (["examples=1"], "examples=1: must be at least 2"),
        (["held_out=0"], "held_out=0: must be at least 1"),
        (["sigma=0"], "sigma=0.*must be a positive number"),
        (["data.label_noise=1"], "label_noise=1: must be less than 1"),
        (["training.learning_rate=0"], "training.learning_rate=0: must be a positive number"),
        (["training.steps=0"], "training.steps=0: must be at least 1 or 'converged'"),
        (["training.weight_decay=-1"], "training.weight_decay=-1: must be at least 0"),
        (["training.readout_gain=0"], "readout_gain=0.*must be a positive number"),
        (["references.examples=1"], "references.examples=1: must be at least 2"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(overrides: list[str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        settings(*overrides)


def test_summaries_leave_two_examples_and_one_of_each_class() -> None:
    summaries = settings("summaries.orders=[bottom]", "summaries.removed=[0.0,0.9]").summaries
    summaries.require_examples(100, 10)
    with pytest.raises(ValueError, match="leaves 10 of 100 examples, and 11 classes need 11 at least; remove 0.89 at"):
        summaries.require_examples(100, 11)
    with pytest.raises(ValueError, match="leaves 1 of 10 examples, and 1 classes need 2 at least"):
        summaries.require_examples(10, 1)
    settings("summaries.removed=[0.0,0.9]").summaries.require_examples(10, 10)  # without an order nothing is removed


def test_limits_themselves_and_what_trains_nothing_are_allowed() -> None:
    assert settings("sgd_batch_size=1", "training.weight_decay=1").sgd_batch_size == 1
    assert settings("examples=2", "held_out=1", "references.examples=2").examples == 2
    for network in ("linearized", "trained"):
        assert settings(f"summaries.network={network}", "training.steps=converged").summaries.orders == []


@pytest.mark.parametrize(
    ("dataset", "chosen", "classes"),
    [
        ("digits", "null", [4, 9]),
        ("cifar10", "null", "all"),
        ("image_folder", "[0,2]", [0, 2]),
        ("digits", "all", "all"),
    ],
)
def test_two_digits_are_scored_by_default_and_all_classes_of_other_datasets(
    dataset: str, chosen: str, classes: list[int] | str
) -> None:
    overrides = [f"dataset={dataset}", f"sample_info.classes={chosen}"]
    overrides += ["dataset.root=DIR"] if dataset == "image_folder" else []
    assert composed("sample_info", overrides, SampleInfoConfig).sample_info.classes == classes
