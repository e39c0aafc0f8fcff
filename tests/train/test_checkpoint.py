"""Checkpoints: exact to the bit, the last two kept, damage noticed, signals obeyed after the save."""

import dataclasses
import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from erasure.dataset import LabelledImages
from erasure.store.lease import LeaseLostError
from harness.run_directory import LOCK, Run
from models.mlp import MLP
from tests.train.test_training import Dropping, images
from train.checkpoint import Checkpoints, State
from train.device_images import DeviceImages
from train.ensemble import Ensemble
from train.epoch_trainer import EpochTrainer, Fit, fit_members
from train.randomness import Draws, permutation
from train.settings import TrainSettings

SEEDS = [0, 1, 2]


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture(scope="module")
def data() -> Mapping[str, DeviceImages]:
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(300, 1, 6, 6, generator=generator), torch.arange(300) % 3
    images += labels[:, None, None, None] * 0.3
    place = {"padding": 1, "flip": True, "device": torch.device("cpu")}
    parts = {"train": slice(0, 200), "validation": slice(200, 300)}
    return {
        name: DeviceImages(LabelledImages(images[part], labels[part]), torch.zeros(1), torch.ones(1), **place)
        for name, part in parts.items()
    }


@pytest.fixture
def settings(settings: TrainSettings) -> TrainSettings:
    """Members stop at different epochs, evaluations are spaced, warm-up spans epochs."""
    return dataclasses.replace(
        settings,
        max_epochs=20,
        patience_steps=20,
        eval_every=2,
        lr=0.02,
        warmup_steps=30,
        weight_decay=0.1,
        batch_size=24,
        min_improvement_bits=0.06,
    )


def train(data, settings: TrainSettings, checkpoints: Checkpoints | None = None, stack: int = 3) -> Fit:
    model = MLP((1, 6, 6), 3, width=16, depth=2, activation="relu", parametrization="mup")
    subsets = torch.stack([permutation(seed, 200)[:100] for seed in SEEDS])
    return fit_members(Ensemble(model), data, SEEDS, subsets, settings, stack=stack, checkpoints=checkpoints)


def same(a: Fit, b: Fit) -> bool:
    weights = [(x[name], y[name]) for x, y in ((a.best, b.best), (a.last, b.last)) for name in a.best]
    return a.curves == b.curves and all(torch.equal(x, y) for x, y in weights)


@pytest.fixture
def stop_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Die right after the save before step number `count` of the process."""
    save = Checkpoints.save

    def arm(count: int) -> None:
        left = [count]

        def due(*_: object) -> bool:
            left[0] -= 1
            return left[0] == 0

        def save_and_die(self: Checkpoints, name: str, state: State) -> None:
            save(self, name, state)
            if left[0] == 0:
                raise Killed

        monkeypatch.setattr(Checkpoints, "due", due)
        monkeypatch.setattr(Checkpoints, "save", save_and_die)

    return arm


@pytest.mark.parametrize("stack", [3, 1])
def test_a_resumed_training_equals_an_undisturbed_one_to_the_bit(
    stack: int, data, settings: TrainSettings, tmp_path: Path, stop_at
) -> None:
    undisturbed = train(data, settings, stack=stack)
    assert len({curve.epochs for curve in undisturbed.curves}) > 1  # some stop while others go on
    deaths = 0
    for count in (1, 3, 17, 26, 40, 10**9):  # before anything, mid-epoch, between evaluations, ...
        stop_at(count)
        try:
            resumed = train(data, settings, Checkpoints(tmp_path, 1e9), stack)
        except Killed:
            deaths += 1
            continue
        assert same(undisturbed, resumed)
        break
    else:
        pytest.fail("it never finished")
    assert deaths >= 3


def test_without_the_checkpoint_of_the_generators_it_would_not(
    data, settings: TrainSettings, tmp_path: Path, stop_at, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: equality to the bit is not for free."""
    undisturbed = train(data, settings)
    stop_at(17)
    with pytest.raises(Killed):
        train(data, settings, Checkpoints(tmp_path, 1e9))
    stop_at(10**9)
    monkeypatch.setattr("train.randomness.EpochOrder.restore", lambda self, tensors: None)
    assert not same(undisturbed, train(data, settings, Checkpoints(tmp_path, 1e9)))


def test_the_last_two_are_kept_and_a_damaged_one_falls_back(tmp_path: Path, caplog) -> None:
    checkpoints = Checkpoints(tmp_path, 1.0)
    for value in range(4):
        checkpoints.save("9-0", ({"x": torch.tensor([value])}, {"value": value}))
    checkpoints.save("90-0", ({"x": torch.tensor([7])}, {"value": 7}))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint-9-0.3.safetensors",
        "checkpoint-9-0.4.safetensors",
        "checkpoint-90-0.1.safetensors",
    ]
    newest = tmp_path / "checkpoint-9-0.4.safetensors"
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1
    newest.write_bytes(content)
    loaded = checkpoints.load("9-0")
    assert loaded is not None
    assert loaded[1] == {"value": 2}
    assert loaded[0]["x"].tolist() == [2]
    assert "damaged checkpoint, going back to the one before" in caplog.text
    assert not newest.exists()
    checkpoints.delete("9-")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-90-0.1.safetensors"]
    assert checkpoints.load("9-0") is None


def test_a_checkpoint_of_other_stacks_is_not_mistaken(
    data, settings: TrainSettings, tmp_path: Path, stop_at, caplog
) -> None:
    stop_at(10)
    with pytest.raises(Killed):
        train(data, settings, Checkpoints(tmp_path, 1e9), stack=3)
    stop_at(10**9)
    assert same(train(data, settings, stack=1), train(data, settings, Checkpoints(tmp_path, 1e9), stack=1))
    assert "is of other seeds, stacks or version: this training starts again" in caplog.text


ENDINGS = {
    signal.SIGINT: (KeyboardInterrupt, None),
    signal.SIGTERM: (SystemExit, 143),
    signal.SIGUSR2: (SystemExit, 140),
}


@pytest.mark.parametrize("number", ENDINGS)
def test_a_signal_ends_the_run_after_the_save(
    number: int, data, settings: TrainSettings, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    ending, code = ENDINGS[signal.Signals(number)]
    undisturbed = train(data, settings)
    # a shell starts what it puts in the background with Ctrl-C ignored
    before = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    inherited = signal.signal(number, before)
    request.addfinalizer(lambda: signal.signal(number, inherited))
    real, epochs = EpochTrainer.begin_round, []

    def begin_round(self: EpochTrainer) -> Draws:
        epochs.append(self.round)
        if len(epochs) == 4:
            os.kill(os.getpid(), number)
        return real(self)

    monkeypatch.setattr(EpochTrainer, "begin_round", begin_round)
    with pytest.raises(ending) as ended:
        train(data, settings, Checkpoints(tmp_path, 1e9))
    assert getattr(ended.value, "code", None) == code
    assert len(list(tmp_path.glob("checkpoint-*"))) == 1
    assert signal.getsignal(number) is before
    assert same(undisturbed, train(data, settings, Checkpoints(tmp_path, 1e9)))
    assert epochs[3:5] == [3, 3]  # the epoch of the signal went on


def test_another_runs_checkpoint_is_not_mistaken(tmp_path: Path, caplog) -> None:
    Checkpoints(tmp_path / "a", 0.0).save("100-0", ({"w": torch.zeros(2)}, {"epoch": 3}))
    (tmp_path / "b").mkdir()
    (path,) = (tmp_path / "a").iterdir()
    copied = tmp_path / "b" / path.name
    copied.write_bytes(path.read_bytes())
    assert Checkpoints(tmp_path / "b", 0.0).load("100-0") is None
    assert "is another run's" in caplog.text
    assert not copied.exists()
    _, values = Checkpoints(tmp_path / "a", 0.0).load("100-0") or ({}, {})
    assert values == {"epoch": 3}


def test_who_was_taken_for_dead_saves_no_checkpoint(tmp_path: Path) -> None:
    run = Run(tmp_path, "x")
    with run.claim():
        run.start("a: 1\n")
        checkpoints = Checkpoints(run.directory, 1.0, run.require_lease)
        checkpoints.save("10-0", ({"w": torch.zeros(2)}, {"epoch": 1}))
        (run.directory / LOCK).write_text(json.dumps({"token": "theirs", "host": "node7", "pid": 12}))
        with pytest.raises(LeaseLostError, match="process 12 on node7 has taken over"):
            checkpoints.save("10-0", ({"w": torch.ones(2)}, {"epoch": 2}))
    assert [path.name for path in run.directory.glob("checkpoint-*")] == ["checkpoint-10-0.1.safetensors"]


def test_stochastic_depth_goes_on_where_it_was(tmp_path: Path, settings: TrainSettings, stop_at) -> None:
    settings = dataclasses.replace(settings, batch_size=16, max_epochs=6, warmup_steps=1, lr=0.05)

    def trained(checkpoints: Checkpoints | None = None) -> Fit:
        data = {"train": images(0), "validation": images(1)}
        return fit_members(Ensemble(Dropping()), data, [3], torch.arange(60)[None], settings, checkpoints=checkpoints)

    undisturbed = trained()
    stop_at(10)
    with pytest.raises(Killed):
        trained(Checkpoints(tmp_path, 1e9))
    stop_at(10**9)
    assert same(undisturbed, trained(Checkpoints(tmp_path, 1e9)))
