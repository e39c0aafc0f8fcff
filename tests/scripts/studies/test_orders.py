"""A table of the orders left and the losses of stored runs, whatever runs there are."""

from pathlib import Path

import pytest

from scripts.studies import orders
from tests.made_up_runs import write_run

LEFT = [18.0, -0.7, 2.3, 1.1]


def certificate(train: list[float] | None) -> dict:
    numbers = {"n": 100, "mean_gap": 0.0, "covariance_gap": 0.0, "edit_size": 0.0, "out_of_range": 0.0, "rounding": 0.0}
    shares = {} if train is None else {"order_shares": [share / 100 for share in train]}
    return {"train": numbers | shares, "test": numbers}


def test_orders_and_losses_stand_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for eraser, model, left in (("leace", "mlp", LEFT), ("control", "mlp", None), ("leace", "linear", LEFT)):
        write_run(tmp_path / "runs", eraser=eraser, model=model, certificate=certificate(left))
    assert orders.main([str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 0
    lines = (tmp_path / "out.md").read_text().splitlines()
    assert lines[0] == "| eraser | orders left, % | linear | MLP |"
    control, leace = ([cell.strip() for cell in line.split("|")[1:]] for line in lines[2:4])
    assert control[:3] == ["control", "", ""]
    assert leace[:2] == ["LEACE", "18, –, 2.3, 1.1"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit):
        orders.main([str(tmp_path / "empty")])
    assert "no finished run" in capsys.readouterr().err
