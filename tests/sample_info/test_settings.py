"""Options of `conf/sample_info`: what they mean, and which do not go together."""

import pytest

from conf.compose import composed
from models.tangent.jacobian import Kind
from sample_info.settings import SampleInfoConfig, SampleInfoSettings

TRAINED = ["summaries.orders=[bottom]", "summaries.network=trained"]


def settings(*overrides: str) -> SampleInfoSettings:
    chosen = [f"sample_info.{override}" for override in overrides]
    return composed("sample_info", chosen, SampleInfoConfig).sample_info


def test_memory_is_in_gibibytes() -> None:
    assert settings("memory_gib=1.5").memory_bytes == 1.5 * 1024**3


@pytest.mark.parametrize("kind", ["exact", "coordinates", "random"])
def test_a_projection_is_of_the_kind_and_size_that_were_asked_for(kind: Kind) -> None:
    kernel = settings(f"kernel.projection={kind}", "kernel.size=77").kernel
    assert (kernel.projection, kernel.size) == (kind, 77)


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["sgd_batch_size=0", "training.weight_decay=1"], "sgd_batch_size=0: must be at least 1"),
        (["sgd_batch_size=8", "training.weight_decay=0"], "needs a positive sample_info.training.weight_decay"),
        ([*TRAINED, "training.steps=converged"], "training.steps=converged"),
        ([*TRAINED, "training.time=continuous"], "training.time=continuous"),
        (["error_estimate=true", "training.steps=converged"], "error_estimate=true: networks are trained"),
        (["examples=1"], "examples=1: must be at least 2"),
        (["held_out=0"], "held_out=0: must be at least 1"),
        (["sigma=0"], "sigma=0.*must be a positive number"),
        (["data.label_noise=1"], "label_noise=1: must be less than 1"),
        (["training.readout_gain=0"], "readout_gain=0.*must be a positive number"),
        (["references.examples=1"], "references.examples=1: must be at least 2"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(overrides: list[str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        settings(*overrides)


def test_limits_themselves_and_what_trains_nothing_are_allowed() -> None:
    assert settings("sgd_batch_size=1", "training.weight_decay=1").sgd_batch_size == 1
    assert settings("examples=2", "held_out=1", "references.examples=2").examples == 2
    for network in ("linearized", "trained"):
        assert settings(f"summaries.network={network}", "training.steps=converged").summaries.orders == []


@pytest.mark.parametrize("removed", [[], [0.2, 1.0], [-0.1, 0.2], [1.5]])
def test_shares_that_cannot_be_removed_are_refused(removed: list[float]) -> None:
    with pytest.raises(ValueError, match=r"removed"):
        settings(f"summaries.removed={removed}")


def test_what_is_left_of_the_examples_must_show_every_class() -> None:
    for removed, allowed in (("[0.8]", True), ("[0.9]", False), ("[0.1,0.9]", False)):
        overrides = (
            "classes=[1,2,7]",
            "examples=20",
            "summaries.orders=[bottom]",
            "summaries.network=linearized",
            f"summaries.removed={removed}",
        )
        if allowed:
            assert settings(*overrides).summaries.removed == [0.8]
        else:
            with pytest.raises(
                ValueError, match=r"removed=0.9: leaves 2 of 20 examples, and 3 classes need 3 at least"
            ):
                settings(*overrides)
