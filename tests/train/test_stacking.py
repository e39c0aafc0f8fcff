"""The choice between one network and one after another is measured, and can be overruled."""

import dataclasses

import pytest
import torch

from erasure.source import LabelledImages
from models.linear import LinearClassifier
from train import stacking
from train.data import DeviceImages
from train.ensemble import Ensemble
from train.memory import MemoryExhaustedError, advice
from train.settings import TrainSettings


class Unstackable(LinearClassifier):
    stackable = False


@pytest.fixture
def train() -> DeviceImages:
    part = LabelledImages(torch.rand(40, 1, 4, 4), torch.arange(40) % 3)
    return DeviceImages(part, torch.zeros(1), torch.ones(1), padding=0, flip=False, device=torch.device("cpu"))


def ensemble(kind: type[LinearClassifier] = LinearClassifier) -> Ensemble:
    return Ensemble(kind((1, 4, 4), 3))


@pytest.mark.parametrize(
    ("seconds", "setting", "stack"),
    [
        ({"all": 0.003, "one": 0.004}, "all", 4),
        ({"all": 0.005, "one": 0.004}, "one", 1),
    ],
)
def test_the_fastest_is_taken_and_the_times_are_told(
    seconds: dict[str, float], setting: str, stack: int, train, settings: TrainSettings, monkeypatch
) -> None:
    monkeypatch.setattr(stacking, "step_seconds", lambda _, __, how, *___: seconds[how])
    chosen = stacking.choose(ensemble(), 4, train, dataclasses.replace(settings, stack="auto"))
    assert (chosen.setting, chosen.stack, chosen.step_seconds) == (setting, stack, seconds)
    assert "4.00 ms one after another" in chosen.why


def test_it_measures_and_disturbs_nothing(train, settings: TrainSettings) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    chosen = stacking.choose(ensemble(), 3, train, dataclasses.replace(settings, stack="auto"))
    assert set(chosen.step_seconds) == {"all", "one"}
    assert all(0 < seconds < 1 for seconds in chosen.step_seconds.values())
    assert torch.equal(before, torch.get_rng_state())


def test_the_option_overrules_it(train, settings: TrainSettings) -> None:
    for option, stack in (("all", 3), ("one", 1)):
        chosen = stacking.choose(ensemble(), 3, train, dataclasses.replace(settings, stack=option))
        assert (chosen.setting, chosen.stack) == (option, stack)


def test_what_cannot_be_stacked_is_not(train, settings: TrainSettings) -> None:
    assert stacking.choose(ensemble(Unstackable), 3, train, dataclasses.replace(settings, stack="auto")).stack == 1
    with pytest.raises(ValueError, match="train.stack=all: Unstackable cannot be stacked; choose auto or one"):
        stacking.choose(ensemble(Unstackable), 3, train, settings)


def test_a_choice_kept_by_a_version_that_knew_threads_is_one_after_another() -> None:
    kept = {"stack": 1, "why": "a step of 3 seeds takes ...", "threads": True, "step_seconds": {"threads": 0.1}}
    assert stacking.Stacking.read(kept).setting == "one"


def test_out_of_memory_says_what_to_lower() -> None:
    with (
        pytest.raises(MemoryExhaustedError, match="out of memory while training: lower train.batch_size=64, or set "),
        advice("training", batch_size=64, stack="auto"),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    with (
        pytest.raises(MemoryExhaustedError, match=r"while evaluating: lower train.eval_batch_size=9 \(.*allocate"),
        advice("evaluating", eval_batch_size=9, stack="one"),
    ):
        torch.empty(2**58)
    with pytest.raises(RuntimeError, match="another"), advice("training", batch_size=64):
        raise RuntimeError("another error")
