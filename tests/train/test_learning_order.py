"""Steps at which an order is learnt, by hand, and the page of the runs that are kept."""

from pathlib import Path
from statistics import mean

import pytest

from harness.results import load
from harness.results.statistics import Spread
from train.learning_order import beyond_step, learnt_step, unlearnt_step
from train.matched_sample_losses import DATA


def test_steps_of_a_curve_by_hand() -> None:
    steps, losses = [0, 1, 3, 7, 15], [3.0, 3.0, 2.0, 1.0, 1.5]
    assert learnt_step(steps, losses) == pytest.approx(3.0)  # half of the fall of 2
    assert learnt_step(steps, [3.0, 3.0, 3.0, 1.0, 1.0]) == pytest.approx(
        2**2.5 - 1
    )  # between 3 and 7, in log(step + 1)
    assert learnt_step(steps, [3.0, 3.0, 2.99, 2.98, 3.2]) is None
    assert unlearnt_step(steps, losses) == 7
    assert unlearnt_step(steps, [3.0, 2.0, 1.0, 0.9, 0.92]) is None
    assert beyond_step(steps, losses, [3.0, 2.5, 2.0, 0.5, 0.4]) == 7  # at step 1 the images were ahead, but not at 3
    assert beyond_step(steps, losses, losses) is None
    assert beyond_step(steps, [4.0] * 5, losses) == 0


def test_the_page_has_the_numbers_of_the_runs_that_are_kept() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "learning_order.md").read_text()
    frame = load(docs / "study_learning_order").counterparts
    assert frame["run_id"].nunique() == 18
    shown = frame[frame["sample"].isin([DATA, "order2"])]
    for (run, name), curves in shown.groupby(["run_id", "sample"]):
        by_seed = [curve for _, curve in curves.groupby("seed")]
        steps = [learnt_step(curve["step"].tolist(), curve["loss_bits"].tolist()) for curve in by_seed]
        known = [step for step in steps if step is not None]
        if 2 * len(known) <= len(by_seed):
            continue
        assert f"{Spread.of(known):,.0f}" in page, (run, name)
        end = mean(curve["loss_bits"].iloc[-1] for curve in by_seed)
        assert f"({end:.2f})" in page, (run, name)
