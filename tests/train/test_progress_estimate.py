"""The share of work done, on which the time left is based."""

import itertools
from dataclasses import replace

import pytest

from conf.compose import composed
from mdl.settings import MdlConfig
from train.progress_estimate import TrainingProgress
from train.settings import TrainSettings


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


def test_progress_never_goes_backwards(settings: TrainSettings) -> None:
    """A training that outlasts all before it makes the work left longer: `python -m mdl` fell from 78 % to 64 %."""
    settings = replace(settings, batch_size=64, patience_steps=1000, min_epoch_steps=20, max_epochs=1000)
    work, shares = TrainingProgress([27, 120, 500, 1295], settings), []
    for i, epochs in enumerate((60, 150, 90, 400)):
        shares += [work.share(i, epoch, min(50, epochs - epoch)) for epoch in range(epochs + 1)]
        work.finish(i, epochs)
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_published_trainings_are_expected_to_take_as_many_epochs_as_the_longest_so_far() -> None:
    """12 and 5 epochs of 10 images are done, and 4 of 20 images out of at least 12; another training waits."""
    settings = composed("mdl", ["train=published", "train.published.patience_epochs=3"], MdlConfig).train
    work = TrainingProgress([10, 10, 20, 20], settings)
    work.finish(0, 12)
    work.finish(1, 5)
    assert work.share(2, 4, 3) == pytest.approx((120 + 50 + 80) / (120 + 50 + 240 + 240))
