"""Networks that go by the image, networks that go by the map, and one trained on digits that went through theirs."""

from pathlib import Path

import pytest
import torch

from erasure.store.checked_files import read_json
from scripts.studies.use_of_leaked_labels import answer_rates, main
from train.__main__ import COMMAND as TRAIN

TINY = ["model=mlp", "model.width=16", "train=quick", "train.max_epochs=8", "seeds=[0,1]", "logger.mode=disabled"]


def test_who_goes_by_the_image_and_who_by_the_map() -> None:
    labels = torch.tensor([0, 1, 2, 2])
    maps = torch.arange(3)[:, None].expand(3, 4)
    assert [*answer_rates(labels.expand(3, 4), labels).values()] == [1.0, 1.0, 0.0, 0.0]
    assert [*answer_rates(maps, labels).values()] == [1.0, 0.0, 1.0, 0.0]
    none = answer_rates(torch.zeros(3, 4, dtype=torch.int64), labels)
    assert [*none.values()] == [0.25, 0.25, 3 / 8, 0.375]


def test_networks_trained_on_the_digits(command, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--eraser", "oracle_leace"]) == 2
    assert "train the network first, python -m train model=mlp" in capsys.readouterr().err
    assert command(TRAIN, "-m", "eraser=control,oracle_leace", *TINY).code == 0
    capsys.readouterr()
    assert main([*TINY, "--eraser", "oracle_leace"]) == 0
    lines = [line.partition(" ± ")[0].split() for line in capsys.readouterr().out.splitlines()]
    right = {cells[0]: float(cells[-1]) for cells in lines if cells and cells[0] in ("control", "oracle")}
    (oracle,) = Path("runs").glob("train-digits-oracle_leace-*/result.json")
    (control,) = Path("runs").glob("train-digits-control-*/result.json")
    accuracy = [100 * sum(read_json(path)["final"]["accuracy"]) / 2 for path in (control, oracle)]
    assert right["oracle"] == pytest.approx(accuracy[1], abs=0.06), "as the run's own test images"
    assert right["control"] < accuracy[0] - 5, "which has not seen the erased"
