"""When a member stops, why, which weights it keeps, and whether it ever left the plateau."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from conf.groups import keys
from erasure.certificate import Certificate
from erasure.store.checked_files import read_json
from harness.loss_curves import MemberCurve, endings
from mdl.__main__ import COMMAND as MDL
from train.__main__ import COMMAND as TRAIN
from train.early_stopping import ending, epochs_left, warn_of_unlike_validation
from train.settings import TrainSettings

CHANCE_BITS = math.log2(10)
QLEACE = ["eraser=qleace", "seeds=[0,1]", "train.stack=all", "logger.mode=disabled"]  # a plateau at first


def losses(
    settings: TrainSettings,
    validation: Sequence[float],
    train: Sequence[float] | None = None,
    *,
    epoch_steps: int = 10,
    eval_every: int = 1,
    **changes,
) -> tuple[list[bool], MemberCurve]:
    """Evaluations until the member stops; by default it left the plateau in its first epoch."""
    changed = dataclasses.replace(settings, **{"max_epochs": 100} | changes)
    curve, best = MemberCurve(0, CHANCE_BITS), []
    for i, loss in enumerate(validation):
        best.append(curve.record(i * eval_every, None if i == 0 else train[i - 1] if train else 1.0, loss))
        curve.ended = ending(curve, changed, epoch_steps)
        if curve.ended:
            break
    return best, curve


def test_it_stops_after_so_many_steps_without_improvement(settings: TrainSettings) -> None:
    best, curve = losses(settings, [3.0, 2.0, 2.5, 2.4, 2.3, 1.0], patience_steps=30)
    assert best == [True, True, False, False, False]
    assert curve.best_epoch == 1
    assert curve.epochs == 4
    assert curve.ended == "patience"


@pytest.mark.parametrize(("epoch_steps", "eval_every"), [(1, 1), (5, 1), (20, 1), (5, 4), (60, 1), (1, 60)])
def test_patience_counts_steps_whatever_their_number_in_an_epoch_and_between_evaluations(
    epoch_steps: int, eval_every: int, settings: TrainSettings
) -> None:
    flat = [2.0] * 1000
    _, curve = losses(
        settings, flat, epoch_steps=epoch_steps, eval_every=eval_every, patience_steps=120, max_epochs=10**6
    )
    assert curve.epochs * epoch_steps == 120
    assert curve.ended == "patience"


def test_a_member_on_the_plateau_is_waited_for(settings: TrainSettings) -> None:
    plateau = [CHANCE_BITS] * 9
    for train, validation, epochs in (
        ([CHANCE_BITS - 0.003] * 9, plateau, 8),  # drift, to the end of plateau_steps
        ([CHANCE_BITS] * 4 + [3.1] * 5, plateau, 7),  # learns by heart: patience_steps from where that began
        ([CHANCE_BITS] * 5 + [3.1] * 4, [*plateau[:6], 3.2, 3.1, 3.1], 8),  # learns: not stopped
    ):
        _, curve = losses(settings, validation, train, patience_steps=30, plateau_steps=80)
        assert curve.epochs == epochs
        assert (curve.plateau_epochs is not None) == (3.1 in train)
        assert curve.ended == (None if validation is not plateau else "patience")


@pytest.mark.parametrize(("preset", "seen_steps"), [("quick", 693), ("default", 2060), ("paper", 2376)])
@pytest.mark.parametrize("epoch_steps", [8, 383])
def test_presets_wait_for_longer_than_plateaus_were_seen_to_last(
    preset: str, seen_steps: int, epoch_steps: int
) -> None:
    """`paper` on the digits: 108 epochs of 22 steps, waited for 220."""
    settings = dataclasses.replace(TrainSettings(**keys("train", preset)), max_epochs=10**6)
    curve = MemberCurve(0, CHANCE_BITS)
    for epoch in range(seen_steps // epoch_steps + 1):
        curve.record(epoch, CHANCE_BITS, CHANCE_BITS)
        assert ending(curve, settings, epoch_steps) is None


def test_the_end_of_a_training_says_why(settings: TrainSettings) -> None:
    never = [CHANCE_BITS + 0.1 * i for i in range(9)]
    endings_of = {
        "by patience": (never, None, {"patience_steps": 20}, (2, 0, "patience", True, True)),
        "by max_epochs": (never, None, {"patience_steps": 900, "max_epochs": 5}, (5, 0, "max_epochs", True, True)),
        "both at once": (never, None, {"patience_steps": 50, "max_epochs": 5}, (5, 0, "patience", True, True)),
        "on the plateau": ([3.32] * 9, [3.32] * 8, {"patience_steps": 20}, (2, 0, "patience", True, False)),
        "drifting": (
            [3.3219, 3.3212, 3.33, 3.33],
            [3.32] * 3,
            {"patience_steps": 20},
            (2, 1, "patience", False, False),
        ),
        "learnt": ([3.3, 2.0, 1.0, 1.1, 1.1], None, {"patience_steps": 20}, (4, 2, "patience", False, True)),
    }
    for name, (validation, train, changes, expected) in endings_of.items():
        _, curve = losses(settings, validation, train, **{"min_improvement_bits": 0.02, "plateau_steps": 0} | changes)
        names = ("epochs", "best_epoch", "ended", "untrained", "left_plateau")
        by_seed = {key: [value] for key, value in zip(names, expected, strict=True)}
        assert endings([curve]) == by_seed | {"plateau_epochs": [0 if expected[-1] else None]}, name


def test_small_improvements_are_kept_but_buy_no_time(settings: TrainSettings) -> None:
    best, curve = losses(settings, [2.0, 1.99, 1.98, 1.97], patience_steps=20, min_improvement_bits=0.05)
    assert best == [True, True, True]
    assert curve.ended
    assert curve.best_validation_bits == 1.98
    _, slow = losses(settings, [2.0, 1.97, 1.94, 1.91, 1.88], patience_steps=20, min_improvement_bits=0.05)
    assert not slow.ended  # small steps that add up are an improvement


def test_epochs_left_are_those_of_its_patience(settings: TrainSettings) -> None:
    options = {"patience_steps": 35, "plateau_steps": 80, "max_epochs": 9}  # an epoch has 10 steps
    for validation, train, left in (
        ([3.3, 2.0], None, 4),
        ([3.3, 2.0, 2.1, 2.1], None, 2),
        ([3.3, 2.0, 2.1, 2.1, 2.1, 2.1], None, 0),
        ([3.3, 3.3], [3.32], 4),  # were it to leave the plateau now
        ([3.3] * 7, [3.32] * 6, 2),
        ([3.3, *(2.0 - 0.1 * i for i in range(8))], None, 1),  # of max_epochs
    ):
        _, curve = losses(settings, validation, train, **options)
        assert epochs_left(curve, dataclasses.replace(settings, **options), 10) == left, validation


def test_of_equal_losses_the_first_is_the_best(settings: TrainSettings) -> None:
    best, curve = losses(settings, [3.0, 2.0, 2.0, 2.5], patience_steps=900)
    assert best == [True, True, False, False]
    assert curve.best_epoch == 1


def test_an_improvement_must_be_more_than_what_is_worth_waiting_for(settings: TrainSettings) -> None:
    exact = [2.0, 1.5, 1.0]  # by 0.5, which binary numbers hold
    for worth, ended in ((0.5, "patience"), (0.25, None)):
        _, curve = losses(settings, [exact[0], 1.5, 1.5], patience_steps=20, min_improvement_bits=worth)
        assert curve.ended == ended


@pytest.mark.parametrize(("validation", "warned"), [(0.12, False), (0.26, True)])
def test_validation_images_that_were_moved_further_are_a_line(validation: float, warned: bool, caplog) -> None:
    moved = {"train": 0.10, "validation": validation}
    warn_of_unlike_validation({split: Certificate(100, 0, 0, size, 0, 0) for split, size in moved.items()}, "do this")
    assert ("2.6 times as far as training images (26 and 10 % of the variance)" in caplog.text) == warned
    assert caplog.text.endswith("do this\n") == warned


def test_only_those_that_stop_trainings_are(command, caplog) -> None:
    few = ["eraser=alf_qleace", "dataset.validation_size=1380"]  # so few for training that others are moved further
    tiny = [*few, "model=linear", "train=quick", "train.max_epochs=1", "seeds=[0]", "logger.mode=disabled"]
    remedy = "mdl.validation=prefix stops them by training images"
    chunks = "mdl.num_chunks=5"
    for chosen, choice, warned in (
        (TRAIN, [], True), (MDL, [chunks], True), (MDL, [chunks, "mdl.validation=prefix"], False)
    ):  # fmt: skip
        caplog.clear()
        assert command(chosen, *tiny, *choice).code == 0
        assert (remedy in caplog.text) == warned


def trained(command, *arguments: str) -> dict:
    outcome = command(TRAIN, *QLEACE, *arguments)
    assert outcome.code == 0, outcome.err
    (path,) = Path("runs").glob("train-*/result.json")
    return read_json(path)


def test_a_seed_that_is_stopped_on_the_plateau_is_marked(command) -> None:
    result = trained(command, "train=quick", "train.patience_steps=80", "train.plateau_steps=0")
    assert result["left_plateau"] == [False, False]
    assert result["plateau_epochs"] == [None, None]
    assert result["ended"] == ["patience", "patience"]
    assert min(result["final"]["end_train_loss_bits"]) > 3.3
