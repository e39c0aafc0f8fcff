"""The choice between side by side and one after another is measured, made once, and can be overruled."""

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


@pytest.mark.parametrize(("together", "alone", "stack"), [(0.004, 0.001, 4), (0.005, 0.001, 1)])
def test_the_faster_one_is_taken_and_the_times_are_told(
    together: float, alone: float, stack: int, train, settings: TrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    auto = dataclasses.replace(settings, stack="auto")
    monkeypatch.setattr(stacking, "step_seconds", lambda _, members, *__: alone if members == 1 else together)
    chosen = stacking.choose(ensemble(), 4, train, auto)
    assert chosen.stack == stack
    assert chosen.step_seconds == pytest.approx((together, 4 * alone))
    assert "4.00 ms one after another" in chosen.why


def test_it_measures_and_disturbs_nothing(train, settings: TrainSettings) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    chosen = stacking.choose(ensemble(), 3, train, dataclasses.replace(settings, stack="auto"))
    assert chosen.step_seconds is not None
    assert 0 < min(chosen.step_seconds) < 1
    assert torch.equal(before, torch.get_rng_state())


def test_the_option_overrules_it(train, settings: TrainSettings) -> None:
    choices = {
        option: stacking.choose(ensemble(), 3, train, dataclasses.replace(settings, stack=option)).stack
        for option in ("all", "one")
    }
    assert choices == {"all": 3, "one": 1}


def test_what_cannot_be_stacked_is_not(train, settings: TrainSettings) -> None:
    assert stacking.choose(ensemble(Unstackable), 3, train, dataclasses.replace(settings, stack="auto")).stack == 1
    with pytest.raises(ValueError, match="train.stack=all: Unstackable cannot be stacked; choose auto or one"):
        stacking.choose(ensemble(Unstackable), 3, train, settings)


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
