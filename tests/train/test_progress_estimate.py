"""Progress of trainings that stop early: from 0 to 1, and never backwards."""

import pytest

from train.epoch_trainer import EpochReport
from train.progress_estimate import TrainingProgress


def test_the_share_grows_with_the_sizes_of_trainings_and_never_goes_backwards() -> None:
    progress = TrainingProgress([100, 300])
    assert progress.share(0, 0, 5) == 0
    assert progress.share(0, 5, 5) == pytest.approx(0.125)
    assert progress.share(0, 6, 30) == pytest.approx(0.125)  # it improved, and goes on
    progress.finish(0)
    assert progress.share(1, 0, 5) == pytest.approx(0.25)
    assert progress.share(1, 20, 0) == 1


def test_stacks_are_expected_to_take_as_long_as_each_other() -> None:
    report = EpochReport(epoch=3, validation_bits=[1.0], epochs_left=7, members=1, stack=(1, 4))
    assert report.mean_epochs == (13 / 4, 10 - 13 / 4)
