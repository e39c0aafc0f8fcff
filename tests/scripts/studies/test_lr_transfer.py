"""The best learning rate stays put over width under μP, and moves without."""

import dataclasses

import numpy as np
import pytest

from scripts.studies import lr_transfer
from scripts.studies.lr_transfer import STUDIES, final_loss_bits, movement, optimum
from scripts.studies.mup_helpers import Architecture


def test_the_optimum_of_a_parabola_lies_between_the_learning_rates_tried() -> None:
    rates = [2.0**k for k in range(-10, -3)]
    losses = {rate: float(np.exp(0.1 * np.log(rate / 0.007) ** 2)) for rate in rates}
    assert optimum(losses) == pytest.approx(0.007)


def test_an_optimum_at_the_end_or_beside_a_divergence_is_the_best_tried() -> None:
    assert optimum({1e-3: 1.0, 2e-3: 2.0, 4e-3: 3.0}) == 1e-3
    assert optimum({1e-3: 2.0, 2e-3: 1.0, 4e-3: float("inf")}) == 2e-3


def test_movement_is_largest_over_smallest_optimum() -> None:
    at = [{0.5 * best: 3.0, best: 1.0, 2 * best: 3.0} for best in (0.01, 0.04, 0.02)]
    assert movement(dict(enumerate(at))) == pytest.approx(4.0)


def test_transfer_for_the_mlp_over_an_eightfold_range() -> None:
    rates = [2.0**k for k in range(-9, -3)]  # round both optima, a factor of four apart
    study = dataclasses.replace(STUDIES["mlp"], widths=[64, 512], steps=20, seeds=[0], learning_rates=rates)
    moves = {}
    for parametrization in ("mup", "standard"):
        losses = {
            width: {
                lr: final_loss_bits(Architecture.parse("mlp"), width, parametrization, lr, study)
                for lr in study.learning_rates
            }
            for width in study.widths
        }
        moves[parametrization] = movement(losses)
    assert moves["mup"] < 1.5
    assert moves["standard"] > 2


def test_an_unknown_study_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        lr_transfer.main(["--model", "swinv2"])
    assert ended.value.code == 2
    assert "--model=swinv2: there is a study of mlp and convnextv2" in capsys.readouterr().err
