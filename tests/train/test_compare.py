"""Pairing and arranging results."""

import pytest

from train.compare import Spread, arrange, labels, paired_difference


def result(eraser: dict | None = None, model: dict | None = None, **config):
    return {
        "config": {
            "dataset": {"name": "digits"},
            "eraser": {"name": "control"} | (eraser or {}),
            "model": {"name": "mlp", "width": 8} | (model or {}),
            "train": {"lr": 0.1},
            "seeds": [0, 1],
        }
        | config
    }


def test_differences_are_paired_by_seed() -> None:
    difference = paired_difference([2.0, 3.0, 4.0], [1.0, 2.0, 2.0])
    assert difference.mean == pytest.approx(4 / 3)
    assert difference.standard_error == pytest.approx(1 / 3)
    assert difference.significant
    assert not paired_difference([2.0, 1.0], [1.0, 2.0]).significant
    one = paired_difference([2.0], [1.0])
    assert one.standard_error is None
    assert not one.significant
    with pytest.raises(ValueError, match="zip"):
        paired_difference([1.0, 2.0], [1.0])


def test_rows_and_columns_with_the_control_first() -> None:
    grid = arrange([result({"name": "leace"}), result(), result(model={"name": "linear"})])
    assert list(grid.rows) == ["digits · mlp", "digits · linear"]
    assert list(grid.columns) == ["control", "leace"]
    assert grid.control("digits · mlp") is grid.cells["digits · mlp"]["control"]
    assert "leace" not in grid.cells["digits · linear"]


def test_what_varies_among_namesakes_is_in_their_label() -> None:
    grid = arrange([result(model={"width": w}) for w in (8, 16)] + [result(model={"name": "linear", "width": 8})])
    assert list(grid.rows) == ["digits · mlp (width=8)", "digits · mlp (width=16)", "digits · linear"]
    grid = arrange([result(train={"lr": lr}) for lr in (0.1, 0.2)])
    assert list(grid.rows) == ["digits · mlp (train.lr=0.1)", "digits · mlp (train.lr=0.2)"]
    grid = arrange([result(), *(result({"name": "alf", "directions": d}) for d in (5, 15))])
    assert list(grid.columns) == ["control", "alf (directions=5)", "alf (directions=15)"]


def test_spread() -> None:
    assert Spread.of([1.0, 3.0]) == Spread(2.0, 2**0.5)
    assert Spread.of([1.0]) == Spread(1.0, None)
    assert f"{Spread.of([1.0, 3.0])}" == "2.000 ± 1.414"
    assert f"{Spread.of([1.0, 3.0]):.1f}" == "2.0 ± 1.4"
    assert f"{Spread.of([1.0]):.2f}" == "1.00"


def test_labels_leave_out_what_most_runs_share_of_sample_infos_options() -> None:
    settings = [(300, 0.0), (300, 0.1), (300, 0.0), (1000, 0.0)]
    runs = [{"model": {"name": "mlp"}, "sample_info": {"examples": n, "noise": noise}} for n, noise in settings]
    assert labels(runs, ("model",)) == ["mlp", "mlp (noise=0.1)", "mlp", "mlp (examples=1000)"]
    assert labels(runs[1:3], ("model",)) == ["mlp (noise=0.1)", "mlp (noise=0)"]
