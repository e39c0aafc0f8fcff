"""The share of work done, on which the time left is based."""

import itertools

from mdl.progress import Work
from train.settings import TrainSettings


def test_the_share_grows_from_0_to_1_whatever_early_stopping_does(settings: TrainSettings) -> None:
    sizes = [20, 60, 150, 400, 1000]
    for lengths in ([5, 5, 5, 5, 5], [30, 20, 10, 5, 2], [2, 5, 10, 20, 30]):
        work, shares = Work(sizes, settings), []
        for i, epochs in enumerate(lengths):
            shares.append([work.share(i, epoch) for epoch in range(epochs + 1)])
            work.finish(i, epochs)
        assert shares[0][0] == 0
        assert all(0 <= share <= 1 for group in shares for share in group)
        assert all(a <= b for group in shares for a, b in itertools.pairwise(group))
        if len(set(lengths)) == 1:  # nothing unexpected happened
            assert shares[-1][-1] > 0.8
