"""Options of `conf/sample_info`: what they mean, and which do not go together."""

import pytest

from conf.compose import composed
from sample_info.__main__ import VERB
from sample_info.kernel.jacobian import Kind
from sample_info.settings import SampleInfoSettings


def settings(*overrides: str) -> SampleInfoSettings:
    chosen = [f"sample_info.{override}" for override in overrides]
    return SampleInfoSettings(**composed("sample_info", chosen, VERB.sections)["sample_info"])


def test_memory_is_in_gibibytes() -> None:
    assert settings("memory_gib=1.5").memory_bytes == 1.5 * 1024**3


@pytest.mark.parametrize("kind", ["exact", "coordinates", "random"])
def test_a_projection_is_of_the_kind_and_size_that_were_asked_for(kind: Kind) -> None:
    projection = settings(f"projection={kind}", "projection_size=77").projection_of(kind, 5)
    assert (projection.kind, projection.size, projection.seed) == (kind, 77, 5)


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["sgd_batch_size=0", "weight_decay=1"], "sgd_batch_size=0: must be at least 1"),
        (["sgd_batch_size=8", "weight_decay=0"], "needs a positive sample_info.weight_decay"),
        (["summaries=[bottom]", "summary_network=trained", "steps=converged", "references=[]"], "steps=converged"),
        (["summaries=[bottom]", "summary_network=trained", "time=continuous", "references=[]"], "time=continuous"),
        (["examples=1"], "examples=1: must be at least 2"),
        (["held_out=0"], "held_out=0: must be at least 1"),
        (["sigma=0"], "sigma=0.*must be a positive number"),
        (["label_noise=1"], "label_noise=1.*from 0 to less than 1"),
        (["readout_gain=0"], "readout_gain=0.*must be positive"),
        (["reference_examples=1"], "reference_examples=1: must be at least 2"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(overrides: list[str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        settings(*overrides)


def test_limits_themselves_and_what_trains_nothing_are_allowed() -> None:
    assert settings("sgd_batch_size=1", "weight_decay=1").sgd_batch_size == 1
    assert settings("examples=2", "held_out=1", "reference_examples=2").examples == 2
    for network in ("linearized", "trained"):
        assert (
            settings("summaries=[]", f"summary_network={network}", "references=[]", "steps=converged").summaries == []
        )


@pytest.mark.parametrize("removed", [[], [0.2, 1.0], [-0.1, 0.2], [1.5]])
def test_shares_that_cannot_be_removed_are_refused(removed: list[float]) -> None:
    with pytest.raises(ValueError, match=r"removed"):
        settings(f"removed={removed}")


def test_what_is_left_of_the_examples_must_show_every_class() -> None:
    for removed, allowed in (("[0.8]", True), ("[0.9]", False), ("[0.1,0.9]", False)):
        overrides = (
            "classes=[1,2,7]",
            "examples=20",
            "summaries=[bottom]",
            "summary_network=linearized",
            f"removed={removed}",
        )
        if allowed:
            assert settings(*overrides).removed == [0.8]
        else:
            with pytest.raises(
                ValueError, match=r"removed=0.9: leaves 2 of 20 examples, and 3 classes need 3 at least"
            ):
                settings(*overrides)
