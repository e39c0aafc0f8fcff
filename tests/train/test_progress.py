"""The share of work done, on which the time left is based."""

import itertools
from dataclasses import replace

import pytest

from train import whole
from train.__main__ import COMMAND as TRAIN
from train.progress import TrainingProgress
from train.settings import TrainSettings
from train.training import EpochReport


def test_the_share_grows_from_0_to_1_whatever_early_stopping_does(settings: TrainSettings) -> None:
    settings, sizes = replace(settings, max_epochs=1000), [20, 60, 150, 400, 1000]
    for lengths in ([5, 5, 5, 5, 5], [30, 20, 10, 5, 2], [2, 5, 10, 20, 30]):
        work, shares = TrainingProgress(sizes, settings), []
        for i, epochs in enumerate(lengths):
            shares.append([work.share(i, epoch, min(2, epochs - epoch)) for epoch in range(epochs + 1)])
            work.finish(i, epochs)
        assert shares[0][0] == 0
        assert all(0 <= share <= 1 for group in shares for share in group)
        assert all(a <= b for group in shares for a, b in itertools.pairwise(group))
        if len(set(lengths)) == 1:  # nothing unexpected happened
            assert shares[-1][-1] > 0.8


def test_the_time_left_rests_on_patience_not_on_the_last_epoch_allowed(settings: TrainSettings) -> None:
    settings = replace(settings, batch_size=128, patience_steps=4000, min_epoch_steps=20, max_epochs=1000)
    work = TrainingProgress(
        [9976], settings
    )  # 78 steps an epoch; control on CIFAR-10 at this size ended after 93 to 119 epochs
    assert [round(work.share(0, epoch, 52), 2) for epoch in (15, 40, 100, 200, 900)] == [0.15, 0.39, 0.66, 0.79, 0.95]
    work = TrainingProgress([9976], settings)
    assert [round(work.share(0, 200 + waited, 52 - waited), 2) for waited in (1, 26, 51)] == [0.80, 0.90, 1.0]
    assert work.share(0, 1000, 0) == 1


def test_the_largest_size_first_foresees_the_others(settings: TrainSettings) -> None:
    """LeNet's control of Table 16: 87 epochs of all photographs, 28 % of all steps. It had been taken for 7 %."""
    settings = replace(settings, batch_size=128, patience_steps=4000, min_epoch_steps=20, max_epochs=1000)
    work = TrainingProgress([1024, 2379, 4172, 6544, 9683, 13837, 19334, 26608, 36234, 48976], settings)
    shares = [work.share(9, epoch, left) for epoch, left in ((10, 10), (40, 11), (87, 0))]
    work.finish(9, 87)
    assert [round(share, 2) for share in (*shares, work.share(8, 0, 11))] == [0.03, 0.11, 0.24, 0.27]


def test_progress_never_goes_backwards(settings: TrainSettings) -> None:
    """A training that outlasts all before it makes the work left longer: the main job fell from 78 % to 64 %."""
    settings = replace(settings, batch_size=64, patience_steps=1000, min_epoch_steps=20, max_epochs=1000)
    work, shares = TrainingProgress([27, 120, 500, 1295], settings), []
    for i, epochs in enumerate((60, 150, 90, 400)):
        shares += [work.share(i, epoch, min(50, epochs - epoch)) for epoch in range(epochs + 1)]
        work.finish(i, epochs)
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_seeds_one_after_another_are_expected_to_take_as_long_as_those_before() -> None:
    report = EpochReport(30, [2.0], 10, 1, stack=(1, 4), epochs_elsewhere=60)
    assert report.mean_epochs == (90 / 4, (100 * 2 - 90) / 4)
    assert EpochReport(30, [2.0, 2.1], 10, 2, stack=(0, 1), epochs_elsewhere=0).mean_epochs == (30, 10)


def test_a_training_of_its_own_shows_it(command, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []
    monkeypatch.setattr(whole.Display, "update", lambda self, done, detail: shares.append(done))
    few = ["train.max_epochs=1000", "train.patience_steps=21", "train.plateau_steps=21"]  # an epoch has 21 steps
    assert command(TRAIN, "train=quick", *few, "model=linear", "seeds=[0]", "logger.mode=disabled").code == 0
    assert shares[0] == pytest.approx(0.1)  # of ten epochs expected; 0.001 of those allowed
