"""When a member stops, and which weights it keeps."""

import dataclasses

from train.early_stopping import EarlyStopping
from train.settings import TrainSettings


def losses(settings: TrainSettings, values: list[float], **changes) -> tuple[list[bool], EarlyStopping]:
    stopping = EarlyStopping(0, dataclasses.replace(settings, **changes))
    best = []
    for epoch, loss in enumerate(values):
        best.append(stopping.update(epoch, None if epoch == 0 else 1.0, loss))
        if stopping.stopped:
            break
    return best, stopping


def test_it_stops_after_patience_evaluations_without_improvement(settings: TrainSettings) -> None:
    best, stopping = losses(settings, [3.0, 2.0, 2.5, 2.4, 2.3, 1.0], patience=3)
    assert best == [True, True, False, False, False]
    assert stopping.curve.best_epoch == 1
    assert stopping.curve.epochs == 4


def test_small_improvements_are_kept_but_buy_no_time(settings: TrainSettings) -> None:
    best, stopping = losses(settings, [2.0, 1.99, 1.98, 1.97], patience=2, min_improvement_bits=0.05)
    assert best == [True, True, True]
    assert stopping.stopped
    assert stopping.curve.best_validation_bits == 1.98
    _, slow = losses(settings, [2.0, 1.97, 1.94, 1.91, 1.88], patience=2, min_improvement_bits=0.05)
    assert not slow.stopped  # small steps that add up are an improvement


def test_rows_of_the_curve(settings: TrainSettings) -> None:
    _, stopping = losses(settings, [3.0, 2.0], patience=3)
    assert stopping.curve.rows(50) == [[50, 0, 0, None, 3.0], [50, 0, 1, 1.0, 2.0]]
